"""`BackupAndRestore`: a `fit` that is stopped anywhere ends as one that is not."""

import functools
import os
import random
import warnings

import numpy as np
import pytest

import unisono as uni
from tests.integration.programs import difference, examples, mirrored

keras = pytest.importorskip("keras")
keras_distribution = pytest.importorskip(
    "unisono._src.integrations.keras.strategy_distribution"
)
layers = keras.layers
BackupAndRestore = uni.keras.callbacks.BackupAndRestore
EPOCHS = 3


class Stop(Exception):
    pass


class StopAt(keras.callbacks.Callback):
    """Raises after so many batches, and notes which were trained on."""

    def __init__(self, batches=None):
        super().__init__()
        self.left = batches
        self.seen = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((self.epoch, batch))
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise Stop


@functools.cache
def classifier(replicas, steps=1):
    """Makes a model with dropout and an optimizer with slots, and its first state."""
    keras.utils.set_random_seed(3)
    with mirrored(replicas).scope():
        model = keras.Sequential(
            [
                layers.Input((5,)),
                layers.Dense(6, activation="relu"),
                layers.Dropout(0.3),
                layers.Dense(3),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"], steps_per_execution=steps)
        model.optimizer.build(model.trainable_variables)
    first = [np.array(v) for v in state(model)]
    # The first `fit` of a model looks at one more batch, from which metrics are built.
    model.fit(*examples(4), batch_size=4, verbose=0)
    return model, first


def state(model):
    """Returns all that training changes."""
    seeds = [layer.seed_generator.state for layer in model.layers[1:2]]
    return [*model.variables, *seeds, *model.optimizer.variables]


class Sequence(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 5

    def __getitem__(self, index):
        rows = slice(4 * index, 4 * index + 4)
        return self.x[rows], self.y[rows]


def endless(x, y):
    slices = uni.data.Dataset.from_tensor_slices((x, y))
    return slices.shuffle(19, seed=5).repeat().batch(4)


def unknown(x, y):
    """Returns a dataset that does not tell how long it is."""
    slices = uni.data.Dataset.from_tensor_slices((x, y)).shuffle(19, seed=5)
    return slices.filter(lambda x, y: True).batch(4)


INPUTS = {
    "arrays": lambda x, y: {"x": x, "y": y, "batch_size": 4},
    "some are for validation": lambda x, y: {
        "x": x, "y": y, "batch_size": 3, "validation_split": 0.2
    },
    "endless dataset": lambda x, y: {"x": endless(x, y), "steps_per_epoch": 4},
    "dataset of unknown length": lambda x, y: {"x": unknown(x, y)},
    "sequence": lambda x, y: {"x": Sequence(x, y), "shuffle": True},
}  # fmt: skip
CASES = [(how, 2, 2) for how in INPUTS] + [("arrays", 1, "epoch")]


def begin(replicas, how, attempt=0, **compiled):
    """Starts as a new process does, the first time with the same random numbers."""
    model, first = classifier(replicas, **compiled)
    for variable, value in zip(state(model), first):
        variable.assign(value)
    np.random.seed(attempt)
    random.seed(attempt)
    return model, INPUTS[how](*examples(19))


def seen(model):
    return model.get_weights(), [np.array(v) for v in model.optimizer.variables]


def run(model, given, *callbacks):
    with warnings.catch_warnings():
        # Keras' words at the end of data whose length it does not know.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        fit = model.fit(epochs=EPOCHS, verbose=0, callbacks=list(callbacks), **given)
    return fit


@pytest.mark.feature("V01")
@pytest.mark.parametrize(("how", "replicas", "freq"), CASES)
def test_a_fit_that_is_stopped_ends_as_one_that_is_not(tmp_path, how, replicas, freq):
    model, given = begin(replicas, how)
    calm, kept = StopAt(), tmp_path / "calm"
    history = run(model, given, BackupAndRestore(kept, freq), calm).history
    wanted = seen(model)
    assert not kept.exists()

    attempts = []
    stops = [7, 6, None] if how == "arrays" else [7, None]
    for attempt, batches in enumerate(stops):
        model, given = begin(replicas, how, attempt)
        attempts.append(StopAt(batches))
        backup = BackupAndRestore(tmp_path / "b", freq)
        try:
            fit = run(model, given, backup, attempts[-1])
        except Stop:
            continue
    assert difference(seen(model), wanted) == 0.0
    # The epoch that was stopped counts whole.
    assert fit.epoch[-1] == EPOCHS - 1
    for name, values in history.items():
        assert fit.history[name] == values[-len(fit.epoch) :]
    steps = [step for one in attempts for step in one.seen]
    assert set(steps) == set(calm.seen)
    # What was trained on after the last backup is trained on again, and no more.
    most = (2 if freq == 2 else 5) * (len(stops) - 1)
    assert len(steps) - len(calm.seen) <= most
    assert int(model.optimizer.iterations) == len(calm.seen)


@pytest.mark.parametrize("how", ["arrays", "endless dataset"])
def test_batches_that_are_on_the_devices_ahead_of_their_step_are_not_lost(
    tmp_path, monkeypatch, how
):
    def batches(self, source):
        """As on accelerators, which get a batch while they compute with the last."""
        before = None
        for batch in source:
            if before is not None:
                yield before
            before = self._place(batch)
        if before is not None:
            yield before

    kind = keras_distribution.StrategyDistribution
    monkeypatch.setattr(kind, "batches", batches)
    wanted = None
    for stops in ([None], [3, None]):
        for attempt, stop in enumerate(stops):
            model, given = begin(2, how, attempt)
            backup = BackupAndRestore(tmp_path / "b", 1)
            try:
                run(model, given, backup, StopAt(stop))
            except Stop:
                continue
        wanted = seen(model) if wanted is None else wanted
    assert difference(seen(model), wanted) == 0.0


def test_a_shuffled_dataset_without_a_seed_goes_on_in_its_order(tmp_path):
    rows = np.arange(20, dtype="float32")[:, None]

    def total(stops):
        """Returns the sum of a weight that adds up what it has seen, epoch by epoch."""
        for stop in stops:
            with mirrored(2).scope():
                model = keras.Sequential([layers.Input((1,)), layers.Dense(1)])
                model.layers[0].kernel.assign([[0.0]])
                # The gradient is the sum of the inputs.
                model.compile(keras.optimizers.SGD(1.0), lambda _, p: p * 4)
            data = (
                uni.data.Dataset.from_tensor_slices((rows, rows)).shuffle(20).batch(4)
            )
            backup = BackupAndRestore(tmp_path / "b", 1)
            try:
                model.fit(data, epochs=2, verbose=0, callbacks=[backup, StopAt(stop)])
            except Stop:
                continue
        return float(model.layers[0].kernel.value[0, 0])

    # Every example counts once per epoch, whatever the order: none twice, none lost.
    assert total([3, 4, None]) == -2 * rows.sum() == total([None])


def test_a_backup_goes_on_with_another_number_of_replicas(tmp_path):
    model, given = begin(1, "arrays")
    run(model, given)
    wanted = model.get_weights()
    for attempt, (replicas, batches) in enumerate([(4, 7), (2, None)]):
        model, given = begin(replicas, "arrays", attempt)
        try:
            run(model, given, BackupAndRestore(tmp_path / "b", 1), StopAt(batches))
        except Stop:
            continue
    assert difference(model.get_weights(), wanted) < 1e-6


def test_several_steps_in_one_execution(tmp_path):
    wanted = None
    for stops in ([None], [2, None]):
        for attempt, batches in enumerate(stops):
            model, given = begin(2, "arrays", attempt, steps=2)
            backup = BackupAndRestore(tmp_path / "b", 2)
            try:
                run(model, given, backup, StopAt(batches))
            except Stop:
                continue
        if wanted is not None:
            assert difference(model.get_weights(), wanted) == 0.0
        wanted = model.get_weights()


def test_the_directory_holds_whole_backups_only_and_is_kept_if_wanted(tmp_path):
    model, given = begin(2, "arrays")
    backup = BackupAndRestore(
        tmp_path / "b", double_checkpoint=True, delete_checkpoint=False
    )
    run(model, given, backup)
    left = sorted(p.name for p in (tmp_path / "b").iterdir())
    assert len(left) == 2
    # A damaged one is passed over.
    newest = uni.train.latest_checkpoint(tmp_path / "b")
    assert newest is not None
    for path in (tmp_path / "b" / os.path.basename(newest)).rglob("*"):
        if path.is_file() and path.stat().st_size > 3000:
            path.write_bytes(b"\0" * path.stat().st_size)
    model, given = begin(2, "arrays")
    again = StopAt()
    with pytest.warns(UserWarning, match="damaged|passed over"):
        fit = run(model, given, backup, again)
    assert len(again.seen) == 5
    assert fit.epoch[-1] == EPOCHS - 1
    # What is done is done.
    model, given = begin(2, "arrays")
    done = StopAt()
    assert run(model, given, backup, done).epoch == []
    assert done.seen == []
    assert run(model, given).epoch == [0, 1, 2]


def test_what_cannot_work_is_said(tmp_path):
    with pytest.raises(ValueError, match="Empty `backup_dir`"):
        BackupAndRestore("")
    for wrong in (0, -1, "batch", 1.5, True):
        with pytest.raises(ValueError, match="save_freq"):
            BackupAndRestore(tmp_path, save_freq=wrong)
    model, given = begin(2, "arrays")
    kept = BackupAndRestore(tmp_path / "b", delete_checkpoint=False)
    run(model, given, kept)
    with mirrored(2).scope():
        other = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
        other.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
    with pytest.raises(ValueError, match="not one of this model"):
        other.fit(*examples(8), verbose=0, callbacks=[kept])
    alone = keras.Sequential([layers.Input((5,)), layers.Dense(3)])
    alone.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
    with pytest.raises(ValueError, match="belongs to no strategy"):
        alone.fit(*examples(8), verbose=0, callbacks=[BackupAndRestore(tmp_path)])
