"""`fit` under parameter servers, TensorFlow's fact 45."""

import keras
import numpy as np
import pytest
from unisono.keras.utils.experimental import DatasetCreator

import unisono
from tests.unit.servers import clusters
from unisono.distribute import coordinator as api

X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(12, 2)
Y = X.sum(1, keepdims=True) + 1.0


def dataset_fn(context):
    return unisono.data.Dataset.from_tensor_slices((X, Y)).batch(4).repeat()


def make_model():
    model = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.1, momentum=0.5),
        loss="mse",
        metrics=["mae"],
        steps_per_execution=2,
    )
    return model


@pytest.mark.feature("T06")
def test_fit_takes_steps_on_workers_and_ends_where_keras_alone_does(tmp_path):
    epochs = []
    counter = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: epochs.append((epoch, sorted(logs)))
    )
    carrier = api.ThreadCarrier(synchronous=True)
    with clusters.cluster(workers=1, carrier=carrier) as (strategy, _):
        with strategy.scope():
            model = make_model()
        creator = DatasetCreator(dataset_fn)
        history = model.fit(
            creator, epochs=2, steps_per_epoch=3, callbacks=[counter], verbose=0
        )
        assert epochs == [(0, ["loss", "mae"]), (1, ["loss", "mae"])]
        assert int(model.optimizer.iterations.value) == 6
        found = [np.asarray(v.value) for v in model.trainable_variables]
        loss = model.evaluate(X, Y, batch_size=12, verbose=0)[0]
        for wrong, told in [
            ({"x": X, "y": Y}, "steps_per_epoch"),
            ({"x": "text", "steps_per_epoch": 1}, "DatasetCreator"),
            ({"x": [], "steps_per_epoch": 1}, "DatasetCreator"),
            ({"x": creator, "y": Y, "steps_per_epoch": 1}, "for arrays only"),
        ]:
            with pytest.raises(ValueError, match=told):
                model.fit(**wrong)
        distributed = strategy.experimental_distribute_dataset(dataset_fn(None))
        for given in ((X, Y), (dataset_fn(None),), (distributed,)):
            model.fit(*given, steps_per_epoch=4, verbose=0)
        assert int(model.optimizer.iterations.value) == 18
        for last, done in ((1, [0]), (3, [1, 2])):
            backup = unisono.keras.callbacks.BackupAndRestore(
                tmp_path / "backup", delete_checkpoint=last == 3
            )
            again = model.fit(
                creator, epochs=last, steps_per_epoch=2, callbacks=[backup], verbose=0
            )
            assert again.epoch == done
        backup = unisono.keras.callbacks.BackupAndRestore(tmp_path, save_freq=2)
        with pytest.raises(ValueError, match="save_freq='epoch' only"):
            model.fit(creator, steps_per_epoch=2, callbacks=[backup])
        with pytest.raises(ValueError, match="validation_data"):
            model.fit(creator, steps_per_epoch=1, validation_data=(X, Y))
    alone = make_model()
    wanted = alone.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    for x, v in zip(found, alone.trainable_variables):
        np.testing.assert_allclose(x, np.asarray(v.value), atol=1e-6)
    assert history.history["loss"] == pytest.approx(wanted.history["loss"], 1e-5)
    assert loss == pytest.approx(alone.evaluate(X, Y, verbose=0)[0], 1e-5)
    with pytest.raises(TypeError, match="callable"):
        DatasetCreator(3)


def test_a_step_of_the_model_s_own_runs_on_workers():
    class Taped(keras.Sequential):
        def train_step(self, data):
            x, y = data
            with unisono.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            found = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(found, self.trainable_variables))
            return {"twice": 2.0 * loss}

    class Pure(keras.Sequential):
        def train_step(self, state, data):
            return super().train_step(state, data)

    def make(kind):
        dense = keras.layers.Dense(1, kernel_initializer="ones")
        model = kind([keras.layers.Input((2,)), dense])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    carrier = api.ThreadCarrier(synchronous=True)
    with clusters.cluster(workers=1, carrier=carrier) as (strategy, _):
        with strategy.scope():
            model, pure = make(Taped), make(Pure)
        model.fit(DatasetCreator(dataset_fn), steps_per_epoch=3, verbose=0)
        found = [np.asarray(v.value) for v in model.trainable_variables]
        with pytest.raises(NotImplementedError, match=r"train_step\(self, data\)"):
            pure.fit(DatasetCreator(dataset_fn), steps_per_epoch=3, verbose=0)
    alone = make(Taped)
    alone.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
    for x, v in zip(found, alone.trainable_variables):
        np.testing.assert_allclose(x, np.asarray(v.value), atol=1e-6)
