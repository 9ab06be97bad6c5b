"""The edge of the scope: what Keras models are given, or become, outside of it."""

import contextlib
import warnings

import numpy as np
import pytest

import unisono as uni
from tests import machine
from tests.integration.programs import difference, examples, mirrored, scope

keras = pytest.importorskip("keras")
layers = keras.layers

CLOSE = 2e-6
X, _ = examples(16, features=4)
Y = X.sum(1, keepdims=True)


def regression(built=True):
    """Makes the same model on every call; it is not compiled."""
    keras.utils.set_random_seed(1)
    first = [layers.Input((4,))] if built else []
    return keras.Sequential(
        [*first, layers.Dense(8, activation="relu"), layers.Dense(1)]
    )


def fit(model, **more):
    model.fit(X, Y, batch_size=8, shuffle=False, verbose=0, **more)


def outcome(model):
    """Returns everything that can be seen of a trained model."""
    return {
        "weights": model.get_weights(),
        "evaluate": model.evaluate(X, Y, batch_size=8, verbose=0),
        "predict": model.predict(X, verbose=0),
        "optimizer": [v.numpy() for v in model.optimizer.variables],
    }


def devices(strategy, model):
    """Returns the numbers of devices that variables of a model have copies on."""
    found = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return {row.devices for row in strategy.describe(found).rows}


# Programs that leave the scope too early. Each makes a model in a scope, or without a
# strategy, does something outside, and returns the trained model.


def fine_tune(strategy):
    with scope(strategy):
        model = regression()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    fit(model, epochs=2)
    model.layers[0].trainable = False
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        "mse",
        metrics=[keras.metrics.MeanAbsoluteError()],
        weighted_metrics=[keras.metrics.MeanSquaredError()],
    )
    fit(model, epochs=2)
    return model


def call_before_fit(strategy):
    keras.utils.set_random_seed(1)
    with scope(strategy):
        model = keras.Sequential(
            [
                layers.Dense(8),
                layers.BatchNormalization(),
                layers.Dropout(0.3, seed=3),
                layers.Dense(1),
            ]
        )
    model(X[:2])
    # Not Adam, which scales up the rounding error of a gradient that should be zero.
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    fit(model)
    return model


def build_after_compile(strategy):
    with scope(strategy):
        model = regression(built=False)
        model.compile("adam", "mse")
    model.build((None, 4))
    fit(model)
    return model


def low_rank(strategy):
    with scope(strategy):
        model = regression()
        model.compile("sgd", "mse")
    fit(model)
    keras.utils.set_random_seed(2)
    model.layers[0].enable_lora(2)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    fit(model)
    assert len(model.trainable_variables) == 5
    return model


def quantize(strategy):
    with scope(strategy):
        model = regression()
        model.compile("sgd", "mse")
    fit(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of its own input layers.
        model.quantize("int8")
    return model


def normalize(strategy):
    keras.utils.set_random_seed(1)
    with scope(strategy):
        layer = layers.Normalization()
        model = keras.Sequential([layer, layers.Dense(1)])
        model.compile("sgd", "mse")
    layer.adapt(X)
    fit(model)
    return model


def normalize_before(strategy):
    keras.utils.set_random_seed(1)
    layer = layers.Normalization()
    layer.adapt(X)
    with scope(strategy):
        model = keras.Sequential([layer, layers.Dense(1)])
        model.compile("sgd", "mse")
    fit(model)
    return model


def stay_inside(strategy):
    keras.utils.set_random_seed(1)
    layer, optimizer = layers.Normalization(), keras.optimizers.Adam(0.01)
    layer.adapt(X)
    with scope(strategy):
        model = keras.Sequential([layer, layers.Dense(1)])
        model.compile(optimizer, "mse")
        fit(model)
    return model


def grow(strategy):
    with scope(strategy):
        model = regression()
    model.add(layers.Dense(1))
    model.compile("sgd", "mse")
    fit(model)
    return model


def adopt_a_base(strategy):
    base = regression()
    if strategy is not None:
        assert strategy.adopt(base) is base
    with scope(strategy):
        model = keras.Sequential([base, layers.Dense(1)])
    base.trainable = False
    model.compile("adam", "mse")
    fit(model)
    base.trainable = True
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    fit(model)
    assert base.predict(X, verbose=0).shape == (16, 1)
    return model


PROGRAMS = [
    fine_tune,
    call_before_fit,
    build_after_compile,
    low_rank,
    quantize,
    normalize,
    normalize_before,
    stay_inside,
    grow,
    adopt_a_base,
]


@pytest.mark.feature("V01")
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_model_gets_outside_the_scope_joins_its_strategy(program):
    strategy = mirrored(2)
    wanted, model = outcome(program(None)), program(strategy)
    assert difference(wanted, outcome(model)) < CLOSE
    assert devices(strategy, model) == {2}


@pytest.mark.parametrize("program", [fine_tune, low_rank])
@pytest.mark.parametrize("kind", ["sharded", "central", "one device"])
def test_other_strategies_bring_variables_in_as_well(program, kind):
    made = {
        "sharded": lambda: uni.distribute.MirroredStrategy(
            machine.names(2), state="sharded"
        ),
        "central": lambda: uni.distribute.experimental.CentralStorageStrategy(
            machine.names_up_to(2), machine.name(0)
        ),
        "one device": lambda: uni.distribute.OneDeviceStrategy(machine.another()),
    }
    wanted, found = program(None), program(made[kind]())
    assert difference(outcome(wanted), outcome(found)) < CLOSE


def test_mixed_precision_takes_an_optimizer_from_outside():
    def program(strategy):
        keras.config.set_dtype_policy("mixed_float16")
        try:
            with scope(strategy):
                model = regression()
            model.compile(keras.optimizers.Adam(0.01), "mse")
            fit(model)
            return model.get_weights()
        finally:
            keras.config.set_dtype_policy("float32")

    assert difference(program(None), program(mirrored(2))) < 1e-3


@pytest.mark.feature("V08")
@pytest.mark.parametrize("compiled", [True, False])
def test_a_loop_of_one_s_own_finds_what_was_made_outside(compiled):
    strategy = mirrored(2)
    with strategy.scope():
        model = regression(built=False)
    model(X)  # Makes the weights, outside the scope.
    model.compile(keras.optimizers.SGD(0.1), "mse")
    alone = regression(built=False)
    alone(X)
    alone.set_weights(model.get_weights())
    alone.compile(keras.optimizers.SGD(0.1), "mse")

    def replica_step(x, y):
        def loss():
            return ((model(x) - y) ** 2).sum() / 16

        gradients = uni.grad(loss, model.trainable_variables)()
        model.optimizer.apply(gradients, model.trainable_variables)

    def step(batch):
        strategy.run(replica_step, args=batch)

    run = uni.function(step) if compiled else step
    data = uni.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    for batch in strategy.experimental_distribute_dataset(data):
        run(batch)
    alone.train_on_batch(X, Y)
    assert difference(alone.get_weights(), model.get_weights()) < CLOSE


def test_a_custom_model_may_get_two_optimizers_outside():
    class Twice(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def compile(self, second, **more):
            super().compile(**more)
            self.second = second

        def call(self, x):
            return self.dense(x)

    strategy = mirrored(2)
    with strategy.scope():
        model = Twice()
    second = keras.optimizers.Adam(0.1)
    model.compile(second, optimizer="sgd", loss="mse")
    assert second.iterations.distribute_strategy is strategy


# Adoption.


def test_adopted_variables_keep_their_values_and_identity():
    def trained():
        model = regression()
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        fit(model)
        return model

    strategy, alone, model = mirrored(2), trained(), trained()
    before = list(model.variables)
    held = [v.value for v in before]
    copies = [np.array(h) for h in held]
    strategy.adopt(model)
    assert all(a is b for a, b in zip(before, model.variables, strict=True))
    assert difference(copies, model.get_weights()) == 0
    for each in (alone, model):
        fit(each)
    assert difference(outcome(alone), outcome(model)) < CLOSE
    assert devices(strategy, model) == {2}
    assert difference(copies, held) == 0  # No step has taken over what was read.
    assert strategy.adopt(model) is model  # Once more changes nothing.


def test_an_adopted_metric_goes_on_counting():
    metric, strategy = keras.metrics.Mean(), mirrored(2)
    metric.update_state([1.0, 2.0, 6.0])
    strategy.adopt(metric)
    assert (float(metric.total), float(metric.count)) == (9.0, 3.0)
    strategy.run(lambda: metric.update_state([3.0]) and None)
    assert (float(metric.total), float(metric.count)) == (15.0, 5.0)


def test_a_model_has_one_strategy_only():
    model = mirrored(2).adopt(regression())
    with uni.distribute.get_strategy().scope():
        layer = layers.Dense(1)
        layer.build((None, 4))
    for obj in (model, layer, model.layers[0]):
        with pytest.raises(ValueError, match="cannot be adopted by"):
            mirrored(3).adopt(obj)


def test_a_model_cannot_be_adopted_while_it_is_trained():
    class Adopt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            mirrored(2).adopt(model)

    model = regression()
    model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="is being trained by a running `fit`"):
        fit(model, callbacks=[Adopt()])


def test_only_keras_objects_can_be_adopted():
    for wrong in ([regression()], keras.losses.MeanSquaredError(), None):
        with pytest.raises(TypeError, match="takes a Keras model, layer, optimizer"):
            mirrored(2).adopt(wrong)
    with mirrored(3).scope(), pytest.raises(RuntimeError, match="Mixing different"):
        mirrored(2).adopt(regression())


def _nested(base):
    return keras.Sequential([base, layers.Dense(1)])


def _continued(base):
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(1)(base.layers[-1](base.layers[0](inputs))))


@pytest.mark.parametrize("make", [_nested, _continued])
def test_a_base_model_from_outside_is_never_brought_in_unasked(make):
    base = regression()
    with mirrored(2).scope():
        model = make(base)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"not created in the .* strategy\.adopt"):
        fit(model)
    assert not hasattr(base.variables[0], "distribute_strategy")
    base.compile("sgd", "mse")
    fit(base)


def test_a_model_from_outside_that_is_compiled_in_a_scope_is_told_of():
    strategy, model = mirrored(2), regression()
    with strategy.scope():
        with pytest.warns(UserWarning, match=r"one device.*strategy\.adopt\(model\)"):
            model.compile("sgd", "mse")
        strategy.adopt(model)
        model.compile("sgd", "mse")  # Without a warning, which would be an error.
    fit(model)
    assert devices(strategy, model) == {2}


# A distribution of Keras itself.


@contextlib.contextmanager
def data_parallel():
    made = keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"])
    keras.distribution.set_distribution(made)
    try:
        yield
    finally:
        keras.distribution.set_distribution(None)


@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_a_distribution_of_keras_is_refused_with_the_cure(when):
    strategy = mirrored(2)
    with contextlib.ExitStack() as stack:
        told = r"DataParallel.*set_distribution\(None\)"
        if when == "before":
            stack.enter_context(data_parallel())
            with pytest.raises(RuntimeError, match=told), strategy.scope():
                pass
        elif when == "inside":
            with strategy.scope(), pytest.raises(RuntimeError, match=told):
                stack.enter_context(data_parallel())
                regression()
        else:
            with strategy.scope():
                model = regression()
                model.compile("sgd", "mse")
            stack.enter_context(data_parallel())
            with pytest.raises(RuntimeError, match=told):
                fit(model)
    assert keras.distribution.distribution() is None
    assert not uni.distribute.has_strategy()


@pytest.mark.needs_devices(2)
def test_the_default_strategy_leaves_a_distribution_of_keras_in_force():
    with data_parallel():
        with uni.distribute.get_strategy().scope():
            model = regression()
        assert len(model.weights[0].value.sharding.device_set) == 2
    assert not hasattr(model, "distribute_strategy")


# Without a strategy.


@pytest.mark.parametrize("where", ["the default scope", "no scope"])
def test_datasets_serve_models_of_no_strategy(where):
    data = uni.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    default = uni.distribute.get_strategy()
    with default.scope() if where != "no scope" else contextlib.nullcontext():
        model = regression()
    model.compile("sgd", "mse")
    history = model.fit(data, validation_data=data, verbose=0).history
    alone = regression()
    alone.compile("sgd", "mse")
    fit(alone)
    assert difference(alone.get_weights(), model.get_weights()) < CLOSE
    wanted = alone.evaluate(X, Y, batch_size=8, verbose=0)
    assert (
        difference(
            [wanted] * 2, [*history["val_loss"], model.evaluate(data, verbose=0)]
        )
        < CLOSE
    )
    inputs = uni.data.Dataset.from_tensor_slices(X).batch(8)
    assert (
        difference(alone.predict(X, verbose=0), model.predict(inputs, verbose=0))
        < CLOSE
    )
    with pytest.raises(ValueError, match="`y` must not be given"):
        model.fit(data, Y, verbose=0)


def test_a_model_of_the_default_scope_remembers_it():
    default = uni.distribute.get_strategy()
    with default.scope():
        model = regression()
    assert model.distribute_strategy is default
    model.layers[0].enable_lora(2)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    fit(model)
    total = uni.function(lambda: model(X).sum())
    assert float(total()) == pytest.approx(float(np.sum(model(X))), rel=1e-5)
    model.set_weights([0 * w for w in model.get_weights()])
    assert float(total()) == 0.0  # The program sees the change.


@pytest.mark.parametrize("in_scope", [True, False])
def test_compile_refuses_metrics_of_unisono_by_name(in_scope):
    with scope(mirrored(2) if in_scope else None):
        model = regression()
    for given in ([uni.metrics.Mean()], {"out": [uni.metrics.Mean()]}):
        with pytest.raises(TypeError, match=r"unisono\.metrics\.Mean.*keras\.metrics"):
            model.compile("sgd", "mse", metrics=given)


def test_compile_takes_metrics_that_keras_has_too():
    with mirrored(2).scope():
        model = regression()
        given = uni.metrics.MeanAbsoluteError(name="mae")
        model.compile("sgd", "mse", metrics=[given])
    _, mae = model.evaluate(X, Y, verbose=0)
    assert mae == pytest.approx(np.mean(np.abs(model.predict(X, verbose=0) - Y)), 1e-5)
    assert float(given.result()) == pytest.approx(mae)


# Keras asks JAX for the shapes of the batch, where JAX 0.12 warns of int64.
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
@pytest.mark.parametrize("n", [1, 2])
def test_a_number_that_jax_would_cut_is_refused_by_every_loop(n):
    ids = np.array([[2**32 + 1], [1], [2], [3]])
    targets = np.zeros((4, 1, 2), np.float32)
    with mirrored(n).scope():
        model = keras.Sequential([layers.Input((1,), dtype="int32"),
                                  layers.Embedding(4, 2)])  # fmt: skip
        model.compile("sgd", "mse")
    dataset = uni.data.Dataset.from_tensor_slices((ids, targets)).batch(4)
    for loop in (
        lambda x: model.predict(x, verbose=0),
        lambda x: model.fit(x, targets, verbose=0),
        lambda x: model.evaluate(x, targets, verbose=0),
        lambda x: model.train_on_batch(x, targets),
        model.predict_on_batch,
    ):
        with pytest.raises(OverflowError, match=r"4294967297 .*jax_enable_x64"):
            loop(ids)
        loop(ids % 4)
    with pytest.raises(OverflowError, match=r"4294967297 .*jax_enable_x64"):
        model.fit(dataset, verbose=0)
