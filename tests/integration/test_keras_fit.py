"""Keras' compile, fit, evaluate and predict under strategies: one device's numbers."""

import functools
import sys
import types

import numpy as np
import pytest

import unisono as uni
from tests import machine
from tests.integration.programs import difference, examples, mirrored, scope
from unisono._src.machines import topology

keras = pytest.importorskip("keras")
hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
layers = keras.layers

CLOSE = 2e-6


def classifier(*more, optimizer="sgd", first=8, metrics=("accuracy",), **compiled):
    """Makes the same compiled model on every call."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [layers.Dense(first, activation="relu"), *more, layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = optimizer() if callable(optimizer) else optimizer
    model.compile(optimizer, loss, metrics=list(metrics), **compiled)
    return model


def trained(replicas, make=classifier, count=19, batch=8, epochs=1, **fit):
    """Fits, evaluates and predicts; returns everything that came out."""
    x, y = examples(count)
    with scope(mirrored(replicas)):
        model = make()
    fit.setdefault("shuffle", False)
    history = model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0, **fit)
    return {
        "history": history.history,
        "evaluate": model.evaluate(x, y, batch_size=batch, verbose=0),
        "predict": model.predict(x, batch_size=batch, verbose=0),
        "weights": model.get_weights(),
        "optimizer": [np.array(v) for v in model.optimizer.variables],
    }


@pytest.mark.feature("V01")
def test_fit_under_scope_gives_the_weights_of_one_device():
    # 08-keras-fit
    x = np.arange(16, dtype="float32").reshape(8, 2) / 16.0
    y = x.sum(1, keepdims=True) + 1

    def make():
        kernel = layers.Dense(1, kernel_initializer="ones")
        model = keras.Sequential([layers.Input((2,)), kernel])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    strategy = mirrored(2)
    alone = make()
    with strategy.scope():
        model = make()
    fit = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    alone.fit(x, y, **fit)
    history = model.fit(x, y, **fit).history
    assert difference(alone.get_weights(), model.get_weights()) < 1e-6
    assert [round(loss, 5) for loss in history["loss"]] == [1.0, 0.50943]
    assert model.distribute_strategy is strategy
    rows = strategy.describe(model).rows
    assert {(r.placement, r.devices) for r in rows} >= {("mirrored", 2)}


@functools.cache
def _linear(replicas):
    """A model of its own for each number of replicas, so that it compiles once."""
    with scope(mirrored(replicas)):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model, model.get_weights()


def _used(replicas, count, batch):
    model, weights = _linear(replicas)
    model.set_weights(weights)
    x, y = examples(count)
    history = model.fit(x, y, batch_size=batch, verbose=0, shuffle=False).history
    evaluated = model.evaluate(x, y, batch_size=batch, verbose=0)
    predicted = model.predict(x, batch_size=batch, verbose=0)
    return history, evaluated, predicted, model.get_weights()


@pytest.mark.feature("V01")
@hypothesis.settings(max_examples=5, deadline=None, derandomize=True)
@hypothesis.given(
    count=st.integers(1, 17),
    batch=st.sampled_from([2, 4, 7, 8]),
    replicas=st.sampled_from([1, 2, 3, 4, 8]),
)
@hypothesis.example(count=19, batch=8, replicas=4)
@hypothesis.example(count=3, batch=8, replicas=8)
def test_any_number_of_samples_in_any_batches_on_any_replicas(count, batch, replicas):
    assert difference(_used(None, count, batch), _used(replicas, count, batch)) < CLOSE


@pytest.mark.feature("V01")
@pytest.mark.parametrize(
    "strategy",
    [
        lambda: uni.distribute.OneDeviceStrategy(machine.another()),
        lambda: uni.distribute.experimental.CentralStorageStrategy(
            machine.names_up_to(3), machine.name(0)
        ),
    ],
)
def test_other_strategies_give_the_same_numbers(strategy):
    x, y = examples(19)
    results = []
    for made in (None, strategy()):
        with scope(made):
            model = classifier(layers.BatchNormalization())
        model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
        results.append(
            [model.get_weights(), model.evaluate(x, y, batch_size=8, verbose=0)]
        )
    assert difference(*results) < CLOSE


VARIANTS = {
    "batch normalization over the global batch, dropout with a seed": {
        "make": lambda: classifier(
            layers.BatchNormalization(), layers.Dropout(0.4, seed=5), optimizer="adam"
        ),
    },
    "several steps per execution, shuffled data": {
        "make": lambda: classifier(steps_per_execution=2),
        "epochs": 2,
        "shuffle": True,
    },
    "gradient accumulation, a validation split": {
        "make": lambda: classifier(
            optimizer=lambda: keras.optimizers.SGD(
                0.1, momentum=0.9, gradient_accumulation_steps=2
            )
        ),
        "validation_split": 0.3,
    },
    "sample weights": {
        "sample_weight": np.linspace(0, 2, 19, dtype="float32"),
        "make": lambda: classifier(weighted_metrics=["accuracy"]),
    },
    "class weights": {"class_weight": {0: 0.2, 1: 1.0, 2: 3.0}},
    "eager steps": {"make": lambda: classifier(run_eagerly=True), "count": 8},
}


@pytest.mark.feature("V01")
@pytest.mark.parametrize("name", VARIANTS)
def test_what_a_model_is_made_of_changes_nothing(name):
    assert difference(trained(None, **VARIANTS[name]), trained(4, **VARIANTS[name])) < (
        CLOSE
    )


@pytest.mark.feature("V01")
def test_mixed_precision_scales_the_loss_as_on_one_device():
    def make():
        keras.config.set_dtype_policy("mixed_float16")
        try:
            return classifier(optimizer="adam")
        finally:
            keras.config.set_dtype_policy("float32")

    wanted, found = trained(None, make), trained(4, make)
    assert difference(wanted["weights"], found["weights"]) < 1e-3
    scales = [r["optimizer"][1] for r in (wanted, found)]
    assert scales[0] == scales[1]


def test_averaged_weights_survive_what_follows():
    x, y = examples(8)
    with mirrored(4).scope():
        model = classifier(optimizer=lambda: keras.optimizers.SGD(0.1, use_ema=True))
    for _ in range(2):
        model.fit(x, y, batch_size=8, verbose=0)
        model.evaluate(x, y, verbose=0)
    averages = model.optimizer._model_variables_moving_average
    assert difference(averages, model.trainable_variables) == 0


def test_batch_statistics_are_those_of_the_whole_batch():
    x = np.arange(16, dtype="float32").reshape(8, 2)
    with mirrored(4).scope():
        layer = layers.BatchNormalization(momentum=0.0)
        model = keras.Sequential([layers.Input((2,)), layer])
        model.compile("sgd", "mse")
    model.fit(x, x, batch_size=8, verbose=0)
    np.testing.assert_allclose(layer.moving_mean, x.mean(0), rtol=1e-6)
    np.testing.assert_allclose(layer.moving_variance, x.var(0), rtol=1e-6)


# Inputs.


def _generator(x, y):
    for start in range(0, len(x), 8):
        yield x[start : start + 8], y[start : start + 8]


def _py_dataset(x, y):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return -(-len(x) // 8)

        def __getitem__(self, index):
            part = slice(8 * index, 8 * index + 8)
            return x[part], y[part]

    return Batches()


def _torch_loader(x, y):
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    return torch.utils.data.DataLoader(data, batch_size=8)


def _dataset(x, y):
    return uni.data.Dataset.from_tensor_slices((x, y)).batch(8)


@pytest.mark.feature("V01")
@pytest.mark.parametrize(
    "source", [_generator, _py_dataset, _torch_loader, _dataset, "distributed"]
)
def test_every_kind_of_input_gives_the_same_weights(source):
    x, y = examples(19)
    strategy = mirrored(4)
    with strategy.scope():
        model = classifier()
    data = _dataset(x, y) if source == "distributed" else source(x, y)
    if source == "distributed":
        data = strategy.experimental_distribute_dataset(data)
    # Keras cannot know how long a generator is, and warns at its end otherwise.
    steps = 3 if source is _generator else None
    model.fit(data, verbose=0, shuffle=False, steps_per_epoch=steps)
    alone = classifier()
    alone.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    assert difference(alone.get_weights(), model.get_weights()) < CLOSE


def test_datasets_serve_validation_prediction_and_class_weights():
    x, y = examples(19)
    with mirrored(4).scope():
        model = classifier()
    weights = {0: 0.2, 1: 1.0, 2: 3.0}
    data, alone = _dataset(x, y), classifier()
    found = model.fit(
        data.repeat(),
        steps_per_epoch=2,
        epochs=2,
        validation_data=data,
        class_weight=weights,
        verbose=0,
    )
    order = np.concatenate([np.arange(19), np.arange(19)])
    sizes, start, batches = [8, 8, 3, 8], 0, []
    for size in sizes:
        part = order[start : start + size]
        batches.append(
            (x[part], y[part], np.array([weights[c] for c in y[part]], "f4"))
        )
        start += size
    wanted = alone.fit(
        iter_of(batches),
        steps_per_epoch=2,
        epochs=2,
        validation_data=(x, y),
        validation_batch_size=8,
        shuffle=False,
        verbose=0,
    )
    assert difference(wanted.history, found.history) < CLOSE
    predicted = model.predict(data, verbose=0)
    assert difference(alone.predict(x, batch_size=8, verbose=0), predicted) < CLOSE
    with pytest.raises(ValueError, match="`y` must not be given"):
        model.fit(data, y, verbose=0)


def iter_of(batches):
    yield from batches


# Callbacks.


@pytest.mark.feature("V01")
def test_callbacks_see_and_change_what_they_would_on_one_device(tmp_path):
    class Watch(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def on_train_batch_end(self, batch, logs=None):
            self.seen.append((logs["loss"], self.model.get_weights()[0].sum()))

        def on_epoch_begin(self, epoch, logs=None):
            self.model.layers[-1].bias.assign_add([0.1, 0.0, 0.0])

    results = []
    for replicas in (None, 4):
        x, y = examples(19)
        with scope(mirrored(replicas)):
            model = classifier()
        path = tmp_path / f"{replicas}.weights.h5"
        watch = Watch()
        callbacks = [
            watch,
            keras.callbacks.EarlyStopping(
                monitor="loss", min_delta=9, patience=1, restore_best_weights=True
            ),
            keras.callbacks.ModelCheckpoint(path, save_weights_only=True),
            keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr * 0.5),
            keras.callbacks.LambdaCallback(
                on_epoch_end=lambda e, logs, m=model, x=x: m.predict(x, verbose=0)
            ),
        ]
        history = model.fit(
            x, y, batch_size=8, epochs=4, callbacks=callbacks, verbose=0, shuffle=False
        )
        saved = classifier()
        saved.build((None, 5))
        saved.load_weights(path)
        results.append(
            [watch.seen, history.history, model.get_weights(), saved.get_weights()]
        )
    assert difference(*results) < CLOSE
    assert len(results[1][0]) == 2 * 3


# Whole models.


@pytest.mark.feature("V01")
def test_on_batch_methods_and_subclassed_models(tmp_path):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(4, activation="tanh")
            self.outer = layers.Dense(3)

        def call(self, x):
            return self.outer(self.inner(x))

        def fit(self, *args, **kwargs):
            self.calls = getattr(self, "calls", 0) + 1
            return super().fit(*args, **kwargs)

    x, y = examples(11)
    results = []
    for replicas in (None, 4):
        keras.utils.set_random_seed(1)
        with scope(mirrored(replicas)):
            model = Net()
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
        logs = [model.train_on_batch(x, y), model.test_on_batch(x[:8], y[:8])]
        data = (x, y) if replicas is None else (_dataset(x, y),)
        batch = {"batch_size": 8} if replicas is None else {}
        model.fit(*data, **batch, verbose=0, shuffle=False)
        assert model.calls == 1
        results.append([logs, model.predict_on_batch(x), model.get_weights()])
    assert difference(*results) < CLOSE


def test_a_model_can_be_saved_and_loaded_under_another_strategy(tmp_path):
    x, y = examples(11)
    with mirrored(4).scope():
        model = classifier(layers.BatchNormalization(), optimizer="adam")
    model.fit(x, y, batch_size=4, verbose=0)
    model.save(tmp_path / "model.keras")
    with mirrored(2).scope():
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    plain = keras.saving.load_model(tmp_path / "model.keras")
    wanted = model.predict(x, verbose=0)
    assert difference(wanted, loaded.predict(x, verbose=0)) < CLOSE
    assert difference(wanted, plain.predict(x, verbose=0)) < CLOSE
    loaded.fit(x, y, batch_size=4, verbose=0, shuffle=False)
    plain.fit(x, y, batch_size=4, verbose=0, shuffle=False)
    assert difference(plain.get_weights(), loaded.get_weights()) < CLOSE


@pytest.mark.feature("V03")
def test_calling_a_model_in_scope_is_one_plain_call():
    # 08-keras-model-call
    with mirrored(2).scope():
        kernel = layers.Dense(1, kernel_initializer="ones")
        model = keras.Sequential([layers.Input((2,)), kernel])
        result = model(np.ones([3, 2], "float32"))
    assert result.shape == (3, 1)
    assert len(result.sharding.device_set) == 1


def test_predict_keeps_the_order_of_samples():
    # 08-keras-predict
    with mirrored(2).scope():
        kernel = layers.Dense(1, kernel_initializer="ones")
        model = keras.Sequential([layers.Input((2,)), kernel])
    x = np.arange(10, dtype="float32").reshape(5, 2)
    found = model.predict(x, batch_size=4, verbose=0).ravel().tolist()
    assert found == [1.0, 5.0, 9.0, 13.0, 17.0]


# Errors.


class _Failing(keras.utils.PyDataset):
    def __init__(self, batches, kind):
        super().__init__()
        self.batches, self.kind = batches, kind

    def __len__(self):
        return 4

    def __getitem__(self, index):
        x, y = examples(4, seed=index)
        if index < self.batches:
            return x, y
        if self.kind == "data":
            raise OSError("the disk is gone")
        return x[:, :3], y


@pytest.mark.parametrize(
    ("method", "kind", "batches", "steps"),
    [
        ("fit", "shape", 1, 1),
        ("fit", "data", 1, 2),
        ("fit", "shape", 3, 2),
        ("evaluate", "shape", 1, 1),
        ("evaluate", "data", 1, 2),
        ("predict", "shape", 2, 1),
        ("predict", "data", 1, 2),
    ],
)
def test_after_any_error_the_weights_are_there_and_right(kind, batches, method, steps):
    x, y = examples(4)
    with mirrored(4).scope():
        model = classifier(layers.BatchNormalization(), steps_per_execution=steps)
    model.fit(x, y, batch_size=4, verbose=0, shuffle=False)
    before = model.get_weights()
    reference = classifier(layers.BatchNormalization())
    reference.build((None, 5))
    reference.set_weights(before)
    data = _Failing(batches, kind)
    with pytest.raises((OSError, ValueError, TypeError)):
        getattr(model, method)(data, verbose=0, **_in_order(method))
    if method == "fit":
        reference.optimizer.build(reference.trainable_variables)
        for index in range(batches):
            reference.train_on_batch(*examples(4, seed=index))
    assert difference(reference.get_weights(), model.get_weights()) < CLOSE
    model.fit(x, y, batch_size=4, verbose=0)
    assert np.isfinite(model.evaluate(x, y, verbose=0)).all()


def _in_order(method):
    return {"shuffle": False} if method == "fit" else {}


def test_an_interrupt_in_a_callback_leaves_the_latest_weights():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    x, y = examples(16)
    with mirrored(4).scope():
        model = classifier()
    with pytest.raises(KeyboardInterrupt):
        model.fit(x, y, batch_size=4, callbacks=[Stop()], verbose=0, shuffle=False)
    alone = classifier()
    alone.fit(x[:8], y[:8], batch_size=4, verbose=0, shuffle=False)
    assert difference(alone.get_weights(), model.get_weights()) < CLOSE


# What a scope touches.


def test_a_scope_leaves_keras_as_it_was():
    from keras.src.backend.jax import trainer

    names = ("__init__", "fit", "_make_function")
    before = [vars(trainer.JAXTrainer).get(n) for n in names]
    set_before = keras.distribution.distribution()
    with mirrored(2).scope():
        assert [vars(trainer.JAXTrainer).get(n) for n in names] != before
        inside = classifier()
    outside = classifier()
    assert [vars(trainer.JAXTrainer).get(n) for n in names] == before
    assert keras.distribution.distribution() is set_before
    assert "fit" in vars(inside)
    assert "fit" not in vars(outside)
    assert not hasattr(outside, "distribute_strategy")


def test_a_model_made_elsewhere_cannot_be_trained_in_a_scope():
    x, y = examples(4)
    model, strategy = classifier(), mirrored(2)
    with strategy.scope(), pytest.raises(ValueError, match="not created in the"):
        model.fit(x, y, verbose=0)
    model.fit(x, y, verbose=0)
    with mirrored(2).scope():
        inner = classifier()
    with mirrored(4).scope(), pytest.raises(RuntimeError, match="Mixing different"):
        inner.fit(x, y, verbose=0)


def test_a_cleared_session_does_not_end_the_scope():
    x, y = examples(4)
    strategy = mirrored(2)
    with strategy.scope():
        keras.utils.clear_session(free_memory=False)
        model = classifier()
    model.fit(x, y, verbose=0)
    assert {r.devices for r in strategy.describe(model).rows} == {2}
    assert keras.distribution.distribution() is None


def test_an_old_keras_is_refused_in_the_user_s_terms(monkeypatch):
    from unisono._src.foundation import library_hooks

    # It has few of the names that newer ones have.
    old = types.ModuleType("keras")
    vars(old)["__version__"] = "3.9.2"
    monkeypatch.setitem(sys.modules, "keras", old)
    integration = library_hooks.known["keras"]
    monkeypatch.setitem(vars(integration), "hooks", integration.load())
    assert list(uni.data.Dataset.range(2)) == [0, 1]
    with pytest.raises(RuntimeError, match=r"Keras 3\.13 or newer, but keras 3\.9\.2"):
        mirrored(2).scope().__enter__()
    assert not uni.distribute.has_strategy()
    with uni.GradientTape():
        pass  # A program with tapes may have loaded Keras for something else.


@pytest.mark.parametrize("kind", ["weights", "seed"])
def test_a_layer_made_outside_the_scope_is_named(kind):
    strategy = mirrored(2)
    layer = layers.Dropout(0.5) if kind == "seed" else layers.Dense(4)
    layer.build((None, 4))
    with strategy.scope():
        model = keras.Sequential([layers.Input((4,)), layer, layers.Dense(1)])
        model.compile("sgd", "mse")
    path = layer.variables[0].path
    with pytest.raises(ValueError, match=f"'{path}'.*not created in the distribution"):
        model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)


def test_a_long_fit_on_cpu_devices_waits_for_earlier_steps(monkeypatch):
    waits, wait = [], topology.THROTTLE.wait

    def counted(results, stored):
        waits.append(topology.THROTTLE.count)
        wait(results, stored)

    monkeypatch.setattr(topology.THROTTLE, "count", 0)
    monkeypatch.setattr(topology.THROTTLE, "wait", counted)
    trained(2, count=320, batch=4)  # 80 steps of `fit`, and as many to look at it.
    assert len(waits) >= 80 // 16
    assert max(waits) <= 16
