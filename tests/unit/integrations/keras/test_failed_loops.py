"""A loop of Keras that fails leaves the weights of a model, in a scope and outside."""

import contextlib
import warnings

import numpy as np
import pytest

import unisono as tf

X, Y = np.ones((4, 2), "f"), np.ones((4, 1), "f")
PAIRS = tf.data.Dataset.from_tensor_slices((X, Y))
SPECS = (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None, 1), tf.float32))


def damaged(batches):
    """Returns a dataset whose generator fails after some batches."""

    def read():
        for _ in range(batches):
            yield X, Y
        raise OSError("unreadable")

    return tf.data.Dataset.from_generator(read, output_signature=SPECS)


class Stop(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise KeyboardInterrupt

    on_test_batch_end = on_predict_batch_end = on_train_batch_end


def make(**options):
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [tf.keras.Input((2,)), layers.BatchNormalization(), layers.Dense(1)]
    )
    model.compile("adam", "mse", metrics=["mae"], **options)
    model.fit(X, Y, verbose=0)
    return model


# The loops, and whether they fail before a step has trained.
FAILURES = {
    "fit, no batches": (lambda m: m.fit(PAIRS, verbose=0), True),
    "evaluate, no batches": (lambda m: m.evaluate(PAIRS, verbose=0), True),
    "predict, no batches": (lambda m: m.predict(PAIRS, verbose=0), True),
    "fit, damaged": (lambda m: m.fit(damaged(0), verbose=0), True),
    "fit, damaged later": (lambda m: m.fit(damaged(2), verbose=0), False),
    "evaluate, damaged": (lambda m: m.evaluate(damaged(2), verbose=0), True),
    "predict, damaged": (lambda m: m.predict(damaged(2), verbose=0), True),
    "validation, damaged": (
        lambda m: m.fit(X, Y, validation_data=damaged(1), verbose=0),
        False,
    ),
    "fit, interrupted": (lambda m: m.fit(X, Y, verbose=0, callbacks=[Stop()]), False),
    "evaluate, interrupted": (
        lambda m: m.evaluate(X, Y, verbose=0, callbacks=[Stop()]),
        True,
    ),
    "predict, interrupted": (
        lambda m: m.predict(X, verbose=0, callbacks=[Stop()]),
        True,
    ),
}


@pytest.mark.parametrize("place", ["outside", "eager", "scope"])
@pytest.mark.parametrize("name", FAILURES)
def test_a_model_goes_on_after_a_loop_that_failed(name, place):
    fail, is_untrained = FAILURES[name]
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope() if place == "scope" else contextlib.nullcontext():
        model = make(run_eagerly=place == "eager")
    before = model.get_weights()
    for _ in range(2):
        with pytest.raises(BaseException):  # noqa: B017
            fail(model)
        after = model.get_weights()
        is_same = all(map(np.array_equal, before, after))
        assert is_same == is_untrained
    losses = model.fit(X, Y, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert np.isfinite(model.predict(X, verbose=0)).all()


EARLIER = {
    "train_on_batch": lambda m: m.train_on_batch(X, Y),
    "test_on_batch": lambda m: m.test_on_batch(X, Y),
    "predict_on_batch": lambda m: m.predict_on_batch(X),
    **{
        name: FAILURES[name][0]
        for name in ("fit, damaged later", "evaluate, damaged", "predict, damaged")
    },
}


@pytest.mark.parametrize("place", ["outside", "scope"])
@pytest.mark.parametrize("loop", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("earlier", EARLIER)
def test_the_state_of_an_earlier_loop_does_not_come_back(earlier, loop, place):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope() if place == "scope" else contextlib.nullcontext():
        model = make()
    with contextlib.suppress(Exception):
        EARLIER[earlier](model)
    wanted = [weight + 5 for weight in model.get_weights()]
    model.set_weights(wanted)
    with pytest.raises(Exception, match="unreadable"):
        getattr(model, loop)(damaged(0), verbose=0)
    assert all(map(np.array_equal, wanted, model.get_weights()))


@pytest.mark.parametrize("place", ["outside", "scope"])
def test_epochs_without_data_leave_the_weights_of_those_before(place):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope() if place == "scope" else contextlib.nullcontext():
        model = make()
    model.train_on_batch(X, Y)
    model.set_weights([weight + 5 for weight in model.get_weights()])
    passes = iter([2, 0, 0])

    def read():
        for _ in range(next(passes)):
            yield X, Y

    data = tf.data.Dataset.from_generator(read, output_signature=SPECS)
    seen = []
    note = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: seen.append(model.get_weights())
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        with contextlib.suppress(ValueError):  # Keras has no numbers of an empty epoch.
            model.fit(data, epochs=3, verbose=0, callbacks=[note])
    assert seen
    assert all(map(np.array_equal, seen[-1], model.get_weights()))
    assert model.get_weights()[0].min() > 5
