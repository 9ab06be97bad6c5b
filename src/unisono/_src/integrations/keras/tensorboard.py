"""The callback `TensorBoard`, which needs no TensorFlow."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.training import profiler, summary

_BATCH = {"batch": 1, "epoch": 0}


class TensorBoard(keras.callbacks.Callback):
    """Writes the losses and metrics of `fit` and `evaluate` for TensorBoard.

    It writes the same curves as `keras.callbacks.TensorBoard`, under the same names,
    but with `unisono.summary`; the callback of Keras needs TensorFlow. With several
    workers, every worker passes the callback, and the chief writes.

    Args:
        log_dir: the directory. The curves of training are in its folder ``train``,
            those of validation and `evaluate` in ``validation``.
        histogram_freq: not supported; a warning says that histograms are not written.
        write_graph: accepted, no effect; there is no graph.
        write_images: not supported; a warning says that images are not written.
        write_steps_per_second: whether to write the number of steps per second.
        update_freq: ``"epoch"``, ``"batch"``, or the number of batches after which to
            write.
        profile_batch: a batch to profile, or the first and the last one; 0 for none.
        embeddings_freq: not supported; a warning says that embeddings are not written.
        embeddings_metadata: accepted, no effect.

    Raises:
        ValueError: `update_freq` or `profile_batch` has another value.

    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from unisono import keras
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x = np.ones((4, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     board = TensorBoard(folder)
    ...     _ = model.fit(x, x, validation_data=(x, x), verbose=0, callbacks=[board])
    ...     sorted(path.name for path in pathlib.Path(folder).iterdir())
    ['train', 'validation']
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: str | int = "epoch",
        profile_batch: int | Sequence[int] = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: object = None,
    ) -> None:
        super().__init__()
        for name, given in [
            ("histogram_freq", histogram_freq),
            ("write_images", write_images),
            ("embeddings_freq", embeddings_freq),
        ]:
            if given:
                warnings.warn(
                    f"TensorBoard writes numbers and profiles; {name}={given!r} has no "
                    "effect. Write what you need in a callback.",
                    stacklevel=2,
                )
        self.log_dir = os.fspath(log_dir)
        self.write_steps_per_second = write_steps_per_second
        self.update_freq = update_freq
        self._every = _check_frequency(update_freq)
        self._profiled = _check_batches(profile_batch)
        self._is_profiling = False
        self._writers: dict[str, summary.SummaryWriter] = {}
        # Batches since the beginning of `fit`, and where the epoch began.
        self._batches = self._before = 0
        self._since = time.perf_counter()

    def _write(
        self, part: str, prefix: str, logs: Mapping[str, object], step: int
    ) -> None:
        """Write some numbers, as points of curves."""
        if part not in self._writers:
            folder = os.path.join(self.log_dir, part)
            self._writers[part] = summary.create_file_writer(folder)
        for name, value in logs.items():
            number = float(np.mean(np.asarray(value)))
            self._writers[part].write_scalar(prefix.format(name), number, step)
        self._writers[part].flush()

    # Training.

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Starts to count batches."""
        self._batches = self._before = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Stores the time at which the epoch begins."""
        self._before, self._since = self._batches, time.perf_counter()

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Starts to profile, if this is the first batch to profile."""
        if self._profiled and self._batches + 1 == self._profiled[0]:
            profiler.start(os.path.join(self.log_dir, "train"))
            self._is_profiling = True

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Writes the metrics of the epoch so far, if they are due by `update_freq`."""
        self._batches += 1
        if self._every and self._batches % self._every == 0:
            self._write("train", "batch_{}", logs or {}, self._batches)
        if self._is_profiling and self._batches >= self._profiled[1]:
            self._stop_profile()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes the metrics of the epoch."""
        given = dict(logs or {})
        validation = {n[4:]: given.pop(n) for n in list(given) if n.startswith("val_")}
        self.model.jax_state_sync()
        optimizer = getattr(self.model.optimizer, "inner_optimizer", None)
        optimizer = optimizer or self.model.optimizer
        given["learning_rate"] = optimizer.learning_rate
        if self.write_steps_per_second:
            seconds = time.perf_counter() - self._since
            given["steps_per_second"] = (self._batches - self._before) / seconds
        self._write("train", "epoch_{}", given, epoch)
        if validation:
            self._write("validation", "epoch_{}", validation, epoch)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Closes the files of summaries, and ends a profile."""
        if self._is_profiling:
            self._stop_profile()
        self._close()

    def _stop_profile(self) -> None:
        self._is_profiling = False
        profiler.stop()

    # Evaluation.

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        """Writes the metrics of `evaluate`, or of a validation, by training step."""
        if self.model.optimizer is None:
            return
        self.model.jax_state_sync()
        step = int(self.model.optimizer.iterations)
        prefix = "evaluation_{}_vs_iterations"
        self._write("validation", prefix, logs or {}, step)
        if "train" not in self._writers and self._batches == 0:
            self._close()  # `evaluate` alone: nobody else closes the file.

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


def _check_frequency(given: str | int) -> int:
    """Return after how many batches to write; 0 for never."""
    is_number = isinstance(given, int) and not isinstance(given, bool) and given > 0
    if not is_number and given not in _BATCH:
        raise ValueError(
            "Expected update_freq 'epoch', 'batch' or a positive number, received "
            f"{given!r}."
        )
    return int(given) if is_number else _BATCH[str(given)]


def _check_batches(given: int | Sequence[int]) -> tuple[int, ...]:
    """Return the first and the last batch to profile; an empty tuple for none."""
    found = (given, given) if isinstance(given, int) else tuple(given)
    if len(found) != 2 or not 0 <= found[0] <= found[1]:
        raise ValueError(
            "Expected profile_batch as the number of a batch, or as the first and the "
            f"last one, received {given!r}."
        )
    return found if found[1] else ()


publish("unisono.keras.callbacks", TensorBoard)
