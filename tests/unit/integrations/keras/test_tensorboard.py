"""The callback `TensorBoard` writes Keras' curves without TensorFlow."""

import numpy as np
import pytest

import unisono as tf
from unisono._src.training import summary

pytest.importorskip("keras")


@pytest.fixture
def written(monkeypatch):
    """The curves that are written, by directory, name and step."""
    found = {}

    class Target:
        def __init__(self, folder, *options):
            self.part = folder.rpartition("/")[2]

        def write(self, event):
            name, value, step = event
            found[self.part, name, step] = value

        def flush(self):
            pass

        def close(self):
            found[self.part, "closed", 0] = True

    monkeypatch.setattr(summary, "EventFile", Target)
    monkeypatch.setattr(summary, "encode_scalar", lambda *point: point)
    return found


def test_fit_and_evaluate_write_the_curves_of_keras(written, tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    x = np.ones((8, 1), np.float32)
    board = tf.keras.callbacks.TensorBoard(
        tmp_path, update_freq=2, write_steps_per_second=True
    )
    told = model.fit(
        x, x, 4, 2, validation_data=(x, x), verbose=0, callbacks=[board]
    ).history
    for epoch in (0, 1):
        assert written["train", "epoch_loss", epoch] == told["loss"][epoch]
        assert written["validation", "epoch_loss", epoch] == told["val_loss"][epoch]
        assert written["train", "epoch_learning_rate", epoch] == pytest.approx(0.1)
        assert written["train", "epoch_steps_per_second", epoch] > 0
    assert {step for _, name, step in written if name == "batch_loss"} == {2, 4}
    name = "evaluation_loss_vs_iterations"
    assert written["validation", name, 4] == pytest.approx(told["val_loss"][1])
    assert written["train", "closed", 0] and written["validation", "closed", 0]
    written.clear()
    model.evaluate(x, x, verbose=0, callbacks=[tf.keras.callbacks.TensorBoard("x")])
    assert set(written) == {("validation", name, 4), ("validation", "closed", 0)}


@pytest.mark.parametrize("given", [{"histogram_freq": 1}, {"write_images": True}])
def test_what_is_not_written_is_told(given):
    (name,) = given
    with pytest.warns(UserWarning, match=f"{name}=.* has no effect"):
        tf.keras.callbacks.TensorBoard("logs", **given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"update_freq": "step"}, "'epoch', 'batch' or a positive number"),
        ({"profile_batch": (5, 2)}, r"received \(5, 2\)"),
    ],
)
def test_a_wrong_frequency_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        tf.keras.callbacks.TensorBoard("logs", **given)
