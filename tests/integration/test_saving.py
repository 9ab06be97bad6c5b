"""Keras and Flax objects in checkpoints, and Keras' own files, under strategies."""

import numpy as np
import pytest
import typer.testing

import unisono as uni
from tests import machine
from tests.integration.programs import (
    difference,
    examples,
    mirrored,
    names,
    scope,
)
from unisono._src.cli import main

keras = pytest.importorskip("keras")
layers = keras.layers

CLOSE = 1e-6


def adam():
    return keras.optimizers.Adam(0.01)


def scaled():
    inner = keras.optimizers.SGD(0.1, momentum=0.9)
    return keras.optimizers.LossScaleOptimizer(inner)


def classifier(optimizer=adam, is_built=True, dropout=0.3):
    """Makes a compiled model whose layers have every kind of state."""
    model = keras.Sequential(
        [
            *([layers.Input((5,))] if is_built else []),
            layers.Dense(4, activation="relu"),
            layers.Dropout(dropout),
            layers.BatchNormalization(),
            layers.Dense(3, name="head"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer(), loss, metrics=["accuracy"])
    return model


def fit(model):
    x, y = examples(20)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    return model.get_weights()


def central():
    return uni.distribute.experimental.CentralStorageStrategy(
        machine.names_up_to(2), machine.name(0)
    )


STRATEGIES = {
    "none": lambda: None,
    "one": lambda: uni.distribute.OneDeviceStrategy(machine.another()),
    "two": lambda: mirrored(2),
    "central": central,
}


@pytest.mark.feature("S05", "V01")
def test_a_model_goes_on_under_any_strategy_also_when_it_is_built_later(tmp_path):
    with mirrored(4).scope():
        model = classifier()
    fit(model)
    by_name, as_root = (lambda x: {"model": x}), (lambda x: {"root": x})
    saved = {
        how: uni.train.Checkpoint(**how(model)).save(tmp_path / name)
        for name, how in (("named", by_name), ("root", as_root))
    }
    wanted = fit(model)
    for name, is_built, how in [
        ("none", False, by_name), ("two", False, as_root), ("central", True, as_root)
    ]:  # fmt: skip
        with scope(STRATEGIES[name]()):
            other = classifier(is_built=is_built)
        status = uni.train.Checkpoint(**how(other)).restore(saved[how])
        if is_built:
            status.assert_consumed()
        else:
            with pytest.raises(AssertionError, match="found no object"):
                status.assert_consumed()
        # Masks of dropout and moments of the optimizer are those of the first.
        assert difference(fit(other), wanted) < CLOSE
        status.assert_consumed()


def test_keys_come_from_the_structure_and_from_names_the_program_chose(
    tmp_path, monkeypatch
):
    keys = []
    for strategy in (None, mirrored(2)):
        with scope(strategy):
            model = classifier(scaled)
            model.optimizer.build(model.trainable_variables)
        checkpoint = uni.train.Checkpoint(model=model, loss=model.metrics[:1])
        path = checkpoint.write(tmp_path / "c")
        keys.append(
            [k.partition("/.ATTR")[0] for k, _ in uni.train.list_variables(path)]
        )
    assert keys[0] == keys[1]
    dense = ["bias", "kernel"]
    norm = ["beta", "gamma", "moving_mean", "moving_variance"]
    assert [k for k in keys[0] if "/layers/" in k] == [
        *(f"model/layers/batch_normalization/{n}" for n in norm),
        *(f"model/layers/dense/{n}" for n in dense),
        "model/layers/dropout/seed_generator/state",
        *(f"model/layers/head/{n}" for n in dense),
    ]
    assert "model/optimizer/inner_optimizer/momentums/5" in keys[0]
    assert "model/optimizer/dynamic_scale" in keys[0]
    assert "loss/0/total" in keys[0]
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["checkpoint", "show", str(path)]
    shown = typer.testing.CliRunner().invoke(main.app, arguments).output
    assert "model/layers/head/kernel" in shown


class Encoder(keras.Model):
    """A model with layers in attributes, a list and a dict, and weights of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(3), layers.Dense(3)]
        self.heads = {"left": layers.Dense(2)}
        self.gate = self.add_weight(shape=(2,), initializer="ones")
        self.noise = keras.random.SeedGenerator(5)
        self.seen = keras.metrics.Mean()

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.heads["left"](x) * self.gate


@pytest.mark.feature("S01", "V05")
def test_a_model_class_of_the_program_is_saved_by_its_attributes(tmp_path):
    x = np.ones((2, 4), "float32")
    made = []
    for _ in range(2):
        with mirrored(2).scope():
            made.append(Encoder())
    first, second = made
    wanted = first(x)
    first.seen.update_state(3.0)
    drawn = keras.random.uniform((2,), seed=first.noise)
    path = uni.train.Checkpoint(net=first).write(tmp_path / "c")
    assert names(path)[1:] == [
        "net/blocks/0/bias", "net/blocks/0/kernel",
        "net/blocks/1/bias", "net/blocks/1/kernel",
        "net/gate", "net/heads/left/bias", "net/heads/left/kernel",
        "net/noise/state", "net/seen/count", "net/seen/total",
    ]  # fmt: skip
    status = uni.train.Checkpoint(net=second).read(path)
    assert float(second.seen.result()) == 3.0
    assert difference(second(x), wanted) == 0.0
    status.assert_consumed()
    for model in made:
        again = keras.random.uniform((2,), seed=model.noise)
        assert difference(again, drawn) > 0
        made[0] = again
    assert difference(made[0], keras.random.uniform((2,), seed=first.noise)) > 0


@pytest.mark.feature("S05")
def test_an_optimizer_alone_is_restored_when_it_is_built(tmp_path):
    with mirrored(2).scope():
        v = keras.Variable(np.ones(3, "float32"))
        optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
        optimizer.apply([np.ones(3, "float32")], [v])
        path = uni.train.Checkpoint(o=optimizer, v=v).write(tmp_path / "c")
        optimizer.apply([np.ones(3, "float32")], [v])
    other, w = keras.optimizers.SGD(0.1, momentum=0.9), keras.Variable([0.0] * 3)
    status = uni.train.Checkpoint(o=other, v=w).read(path)
    status.assert_existing_objects_matched()
    assert float(other.learning_rate) == 0.5
    other.apply([np.ones(3, "float32")], [w])
    status.assert_consumed()
    assert difference(v, w) == 0.0


def test_values_of_another_shape_are_refused_and_a_part_can_be_taken(tmp_path):
    model = keras.Sequential([layers.Input((5,)), layers.Dense(4)])
    path = uni.train.Checkpoint(model=model, epoch=3).write(tmp_path / "c")
    wide = keras.Sequential([layers.Input((6,)), layers.Dense(4)])
    before = wide.get_weights()
    with pytest.raises(ValueError, match=r"shape \(5, 4\).*shape \(6, 4\)"):
        uni.train.Checkpoint(model=wide).read(path)
    assert difference(wide.get_weights(), before) == 0.0
    same = keras.Sequential([layers.Input((5,)), layers.Dense(4)])
    status = uni.train.Checkpoint(model=same).read(path).expect_partial()
    status.assert_existing_objects_matched()
    assert difference(same.get_weights(), model.get_weights()) == 0.0


@pytest.mark.feature("S04")
def test_a_callback_of_the_program_may_save_while_fit_runs(tmp_path):
    with mirrored(2).scope():
        model = classifier()
    checkpoint = uni.train.Checkpoint(model=model)
    seen = []

    class Saving(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                options = uni.train.CheckpointOptions(enable_async=True)
                checkpoint.save(tmp_path / "c", options=options)
                seen.append(model.get_weights())

    x, y = examples(20)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Saving()])
    checkpoint.sync()
    other = classifier()
    found = uni.train.latest_checkpoint(tmp_path)
    uni.train.Checkpoint(model=other).restore(found).assert_consumed()
    assert difference(other.get_weights(), seen[0]) == 0.0
    assert int(other.optimizer.iterations) == 1


@pytest.mark.feature("S06", "V01")
@pytest.mark.parametrize("name", ["one", "two", "central"])
def test_keras_own_files_work_under_every_strategy(tmp_path, name):
    strategy = STRATEGIES[name]()
    x, _ = examples(6)
    # Keras' files lack the state of seed generators; a checkpoint has it.
    with scope(strategy):
        model = classifier(dropout=0.0)
    fit(model)
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    wanted, predicted = fit(model), model.predict(x, verbose=0)
    for inside in (None, strategy) if name == "two" else (strategy,):
        with scope(inside):
            loaded = keras.saving.load_model(tmp_path / "m.keras")
        assert difference(fit(loaded), wanted) < CLOSE
        assert difference(loaded.predict(x, verbose=0), predicted) < CLOSE
        if inside is not None:
            assert loaded.distribute_strategy is inside
            kernel = loaded.layers[0].kernel
            assert kernel.distribute_strategy is inside
    with scope(strategy):
        other = classifier(dropout=0.0)
        other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "m.weights.h5")
    assert difference(fit(other), wanted) < CLOSE
