"""Saving and exiting in order when a machine is about to be taken away.

A worker that is told to end tells the others. All workers agree on a place between two
steps that none of them has passed; there they save together and exit with a code that
asks for a restart. A thread exchanges the notes for this, so a step, an evaluation, a
compilation or a wait for input goes on undisturbed (docs/decisions/0015).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar, final

from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.foundation import errors, jax_internals, options
from unisono._src.saving.checkpoint.checkpoint import Checkpoint
from unisono._src.saving.checkpoint.manager import CheckpointManager
from unisono._src.workers import process_group, worker_notes


@final
class PreemptionWatcher:
    """Never reports a preemption, like TensorFlow's outside Google's TPU platform.

    A program that uses it runs as if there were no preemptions; creating it logs a
    warning. To save and exit when a machine is about to be taken away, use
    `PreemptionCheckpointHandler`.

    >>> import unisono
    >>> watcher = unisono.distribute.experimental.PreemptionWatcher()
    >>> watcher.preemption_message is None
    True
    >>> watcher.block_until_worker_exit()
    """

    def __init__(self) -> None:
        _log.warning(
            "PreemptionWatcher sees no preemption on this platform, as in TensorFlow. "
            "Use unisono.distribute.experimental.PreemptionCheckpointHandler to save "
            "and exit when a machine is about to be taken away."
        )

    @property
    def preemption_message(self) -> str | None:
        """The message of a preemption: always None."""
        return None

    def block_until_worker_exit(self) -> None:
        """Returns immediately, because no preemption is ever reported."""


# How often the thread looks for a notice.
_TICK_SECONDS = 0.2
# How long it waits for the other workers' notes.
_AGREE_SECONDS = 30.0
# The attribute of the checkpoint that counts steps; its name is TensorFlow's.
_RUNS = "checkpointed_runs"
_log = logging.getLogger("unisono")
# Numbers the handlers of a program, so that their notes stay apart. Every worker makes
# the same handlers in the same order.
_handler_numbers = itertools.count()
_P = ParamSpec("_P")
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class TerminationConfig:
    """Settings for how a worker notices a preemption, and how it exits.

    Args:
        termination_watcher_fn: a function that returns whether this worker is about to
            be stopped. A thread calls it about once a second. By default, the worker
            waits for SIGTERM.
        exit_fn: called on every worker after the last save. By default, the worker
            exits with code 42.
        grace_period: the number of seconds between the notice and the end. With 0, the
            default, workers save and exit immediately. Otherwise they save, continue
            training, and save again and exit shortly before the time is over.
        save_fn: called on every worker instead of the manager's `save`, with the
            arguments of `save_checkpoint_if_preempted`.

    Raises:
        ValueError: `grace_period` is negative.

    >>> import signal, tempfile, unisono
    >>> done = []
    >>> config = unisono.distribute.experimental.TerminationConfig(
    ...     save_fn=lambda: done.append("save"), exit_fn=lambda: done.append("exit")
    ... )
    >>> handler = unisono.distribute.experimental.PreemptionCheckpointHandler(
    ...     None, unisono.train.Checkpoint(), tempfile.mkdtemp(), config
    ... )
    >>> signal.raise_signal(signal.SIGTERM)
    >>> handler.run(lambda: done.append("step"))
    >>> done
    ['save', 'exit', 'step']
    """

    termination_watcher_fn: Callable[[], bool] | None = None
    exit_fn: Callable[[], Any] | None = None
    grace_period: float | None = None
    save_fn: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.grace_period is not None and self.grace_period < 0:
            raise ValueError(
                "grace_period must be a number of seconds >= 0, received "
                f"{self.grace_period}."
            )


# Three parties touch its fields: the main thread, which passes the places between
# steps; the signal handler, which may run at any point of the main thread, sets
# `_noticed_at` alone and takes no lock; and the thread of `_watch`, which asks, tells
# and agrees. `_changed` guards what the two threads share: `_passed`, `_is_frozen`,
# `_stop_at`, `_round` and `_failure`.
class PreemptionCheckpointHandler:
    """Saves and exits on all workers when one of them is about to be stopped.

    The constructor restores the latest checkpoint, if there is one. From then on,
    SIGTERM no longer ends the process, unless you set a `termination_watcher_fn`. Every
    worker must call `run` for each of its steps: when a worker is about to be stopped,
    all workers save before the same call of `run` and exit with code 42.

    The function that you pass to `run` should take its elements from iterators itself.
    Elements that are taken before `run` count as used in the checkpoint.

    Args:
        cluster_resolver: the cluster resolver of the strategy; None for one process.
        checkpoint_or_checkpoint_manager: what to save. The checkpoint gets an attribute
            ``checkpointed_runs``, which counts the calls of `run`.
        checkpoint_dir: the directory, if a checkpoint is given; only the newest
            checkpoint is kept there.
        termination_config: how to notice a preemption, and what to do then.

    Raises:
        TypeError: neither a checkpoint nor a manager is given.
        ValueError: a checkpoint is given without a directory.
        RuntimeError: this process has not joined the cluster yet, or the handler waits
            for SIGTERM and is not created in the main thread.

    >>> import tempfile, unisono
    >>> v = unisono.Variable(0.0)
    >>> handler = unisono.distribute.experimental.PreemptionCheckpointHandler(
    ...     None, unisono.train.Checkpoint(v=v), tempfile.mkdtemp()
    ... )
    >>> while handler.total_run_calls < 3:
    ...     _ = handler.run(v.assign_add, 2.0)
    >>> float(v.numpy())
    6.0
    >>> handler.close()
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None,
        checkpoint_or_checkpoint_manager: Checkpoint | CheckpointManager,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        termination_config: TerminationConfig | None = None,
    ) -> None:
        self._manager = _make_manager(checkpoint_or_checkpoint_manager, checkpoint_dir)
        self._config = termination_config or TerminationConfig()
        self._group = _check_group(cluster_resolver)
        self._topic = f"preemption {next(_handler_numbers)}"
        self._noticed_at: float | None = None
        self._changed = threading.Condition()
        self._passed = 0  # The number of places between steps that are behind us.
        self._round = 0  # 0 until the first save; 1 during a grace period.
        # Whether `_passed` has been told to the others, and must not grow before all
        # have agreed.
        self._is_frozen = False
        self._stop_at: int | None = None
        self._failure: BaseException | None = None
        self._slowest = self._saved_in = 0.0
        self._closed = threading.Event()
        self._former_handler: Any = None
        self._thread: threading.Thread | None = None
        if not hasattr(self._checkpoint, _RUNS):
            setattr(self._checkpoint, _RUNS, 0)
        # First: until then there is nothing worth saving.
        self._manager.restore_or_initialize()
        self._watch_signal()
        atexit.register(self.close)
        if self._group.size > 1 or self._config.termination_watcher_fn is not None:
            self._thread = threading.Thread(
                target=self._watch, name="unisono preemption", daemon=True
            )
            self._thread.start()

    @property
    def _checkpoint(self) -> Checkpoint:
        return self._manager.checkpoint

    @property
    def total_run_calls(self) -> int:
        """The number of calls of `run`, including those before a restart.

        >>> import signal, tempfile, unisono
        >>> experimental = unisono.distribute.experimental
        >>> checkpoint, directory = unisono.train.Checkpoint(), tempfile.mkdtemp()
        >>> config = experimental.TerminationConfig(exit_fn=lambda: None)
        >>> handler = experimental.PreemptionCheckpointHandler(
        ...     None, checkpoint, directory, config
        ... )
        >>> signal.raise_signal(signal.SIGTERM)
        >>> handler.save_checkpoint_if_preempted()
        >>> handler = experimental.PreemptionCheckpointHandler(
        ...     None, unisono.train.Checkpoint(), directory
        ... )
        >>> handler.total_run_calls
        1
        >>> handler.close()
        """
        return int(getattr(self._checkpoint, _RUNS))

    def run(
        self,
        distributed_train_function: Callable[_P, _Result],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _Result:
        """Calls a function; first saves and exits if a worker is about to be stopped.

        Args:
            distributed_train_function: a function that runs one step, on all workers.
            *args: its positional arguments.
            **kwargs: its keyword arguments.

        Returns:
            The result of the function.

        Raises:
            SystemExit: a worker is about to be stopped, and the checkpoint is saved.
            SaveError: the checkpoint could not be saved.
            WorkerError: not all workers call `run`.

        >>> import signal, tempfile, unisono
        >>> directory = tempfile.mkdtemp()
        >>> handler = unisono.distribute.experimental.PreemptionCheckpointHandler(
        ...     None, unisono.train.Checkpoint(), directory
        ... )
        >>> handler.run(lambda x: 2 * x, 21)
        42
        >>> signal.raise_signal(signal.SIGTERM)
        >>> handler.run(lambda x: 2 * x, 21)
        Traceback (most recent call last):
        ...
        SystemExit: 42
        >>> unisono.train.latest_checkpoint(directory).endswith("/ckpt-1")
        True
        """
        self._stop_here((), {})
        begun = time.monotonic()
        result = distributed_train_function(*args, **kwargs)
        self._count(begun)
        return result

    def save_checkpoint_if_preempted(self, *args: object, **kwargs: object) -> None:
        """Saves and exits if a worker is about to be stopped; an alternative to `run`.

        Every worker must call it equally often, for example after each step. Each call
        counts in `total_run_calls`.

        Args:
            *args: positional arguments for the function that saves.
            **kwargs: keyword arguments for it.

        Raises:
            SystemExit: a worker is about to be stopped, and the checkpoint is saved.
            SaveError: the checkpoint could not be saved.
            WorkerError: not all workers call it.

        >>> import signal, tempfile, unisono
        >>> directory = tempfile.mkdtemp()
        >>> handler = unisono.distribute.experimental.PreemptionCheckpointHandler(
        ...     None, unisono.train.Checkpoint(), directory
        ... )
        >>> handler.save_checkpoint_if_preempted()
        >>> signal.raise_signal(signal.SIGTERM)
        >>> handler.save_checkpoint_if_preempted(checkpoint_number=7)
        Traceback (most recent call last):
        ...
        SystemExit: 42
        >>> unisono.train.latest_checkpoint(directory).endswith("/ckpt-7")
        True
        """
        self._count(time.monotonic())
        self._stop_here(args, kwargs)

    @contextlib.contextmanager
    def watch_preemption_scope(self) -> Iterator[None]:
        """A context manager that calls `save_checkpoint_if_preempted` after its block.

        The block can be an epoch, for example. Every worker must run the same number of
        these blocks.

        Raises:
            SystemExit: a worker is about to be stopped, and the checkpoint is saved.
            SaveError: the checkpoint could not be saved.
            WorkerError: not all workers run the block.

        >>> import tempfile, unisono
        >>> handler = unisono.distribute.experimental.PreemptionCheckpointHandler(
        ...     None, unisono.train.Checkpoint(), tempfile.mkdtemp()
        ... )
        >>> with handler.watch_preemption_scope():
        ...     pass
        >>> handler.total_run_calls
        1
        >>> handler.close()
        """
        yield
        self.save_checkpoint_if_preempted()

    def close(self) -> None:
        """Stops watching and restores the former handler of SIGTERM.

        >>> import signal, tempfile, unisono
        >>> before = signal.getsignal(signal.SIGTERM)
        >>> handler = unisono.distribute.experimental.PreemptionCheckpointHandler(
        ...     None, unisono.train.Checkpoint(), tempfile.mkdtemp()
        ... )
        >>> handler.close()
        >>> signal.getsignal(signal.SIGTERM) is before
        True
        """
        self._closed.set()
        atexit.unregister(self.close)
        if self._thread is not None:
            self._thread.join(5.0)
        if self._former_handler is not None:
            # Only the main thread may set signal handlers.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, self._former_handler)
            self._former_handler = None

    def _count(self, begun: float) -> None:
        setattr(self._checkpoint, _RUNS, self.total_run_calls + 1)
        self._slowest = max(self._slowest, time.monotonic() - begun)

    # Noticing.

    def _watch_signal(self) -> None:
        if self._config.termination_watcher_fn is not None:
            return
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "A PreemptionCheckpointHandler waits for SIGTERM and must be made in "
                "the main thread; or give TerminationConfig a termination_watcher_fn."
            )
        self._former_handler = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        # It only notes the time: a signal can come while any lock is held.
        if self._noticed_at is None:
            self._noticed_at = time.monotonic()

    def _is_due(self) -> bool:
        """Whether this worker was told to end and should save now."""
        if self._noticed_at is None:
            return False
        if self._round == 0:
            return True
        # Two of the slowest steps so far, until all workers have stopped; twice the
        # time of the last save; and a second to spare.
        needed = 2 * self._slowest + 2 * self._saved_in + 1.0
        return time.monotonic() > self._noticed_at + self._grace - needed

    @property
    def _grace(self) -> float:
        return self._config.grace_period or 0.0

    def _watch(self) -> None:
        """Watches for notices and agrees with the others where to stop; a thread."""
        asked_at = 0.0
        while not self._closed.wait(_TICK_SECONDS):
            try:
                now = time.monotonic()
                ask = self._config.termination_watcher_fn
                if ask is not None and now > asked_at + 1.0 and not self._noticed_at:
                    asked_at = now
                    self._noticed_at = now if ask() else None
                if (
                    self._group.size > 1
                    and not self._is_frozen
                    and self._share_notice()
                ):
                    self._agree_on_place()
            except BaseException as error:  # The main thread raises it.
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return

    def _share_notice(self) -> bool:
        """Whether any worker is about to end; tells the others if this one is."""
        # Any worker may have the notice, so this looks at all keys instead of waiting
        # for a note from each.
        client: Any = jax_internals.distributed_state.client
        where = f"unisono/{self._topic}/{self._round}/"
        if self._is_due():
            client.key_value_set(
                f"{where}{self._group.index}", "told", allow_overwrite=True
            )
            return True
        return bool(client.key_value_dir_get(where))

    def _agree_on_place(self) -> None:
        """Agrees with the others on the next place that none of them has passed."""
        with self._changed:
            self._is_frozen = True
            passed = self._passed
        notes = worker_notes.NoteExchange(
            self._group, f"{self._topic}, save {self._round}"
        )
        # Not under the lock: the main thread may come to its next place meanwhile,
        # where it waits for the answer.
        told = [int(note) for note in notes.post(str(passed), _AGREE_SECONDS)]
        with self._changed:
            # A worker that is behind goes on to that place; none has to go back.
            self._stop_at = max(told)
            self._changed.notify_all()

    # Stopping.

    def _stop_here(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Goes on past a place between steps, or saves there and exits."""
        if self._should_go_on():
            return
        begun = time.monotonic()
        _log.warning(
            "A worker is about to be ended: saving after %d calls of run.",
            self.total_run_calls,
        )
        save = self._config.save_fn or self._save
        save(*args, **kwargs)
        self._saved_in = time.monotonic() - begun
        if self._round == 0 and self._grace > 0:
            with self._changed:
                # The thread may ask again: the second save, shortly before the end, is
                # agreed upon in the same way.
                self._round, self._is_frozen, self._stop_at = 1, False, None
                self._passed += 1
            return
        self.close()
        leave = self._config.exit_fn or _exit
        leave()

    def _save(self, *args: Any, **kwargs: Any) -> None:
        self._manager.save(*args, **{"check_interval": False, **kwargs})
        # The save may be in the background, and the exit must not come before it ends.
        self._manager.sync()

    def _should_go_on(self) -> bool:
        """Whether to go on past this place between steps, which is then counted."""
        if self._closed.is_set():
            return True
        if self._group.size == 1:
            if self._failure is not None:
                raise self._failure
            return not self._is_due()
        # The thread reads `_passed` under the same lock, so no place is passed after
        # the number has been told.
        with self._changed:
            is_ending = self._is_frozen or self._failure is not None
            if is_ending and self._passed >= self._wait_for_place():
                return False
            self._passed += 1
            return True

    def _wait_for_place(self) -> int:
        """Returns the place to stop at, after all workers have agreed on it."""
        self._changed.wait_for(
            lambda: self._stop_at is not None or self._failure is not None,
            2 * _AGREE_SECONDS,
        )
        if self._failure is not None:
            raise self._failure
        if self._stop_at is None:
            raise errors.WorkerStalledError(
                "The workers did not agree on a step to save at within "
                f"{2 * _AGREE_SECONDS:g} s, although one of them is about to end."
            )
        return self._stop_at


def _exit() -> None:
    sys.exit(options.RESTART_CODE)


def _make_manager(given: Any, directory: Any) -> CheckpointManager:
    if isinstance(given, CheckpointManager):
        return given
    if not isinstance(given, Checkpoint):
        raise TypeError(
            "Expected a unisono.train.Checkpoint or CheckpointManager, received "
            f"{type(given).__name__}."
        )
    if directory is None:
        raise ValueError(
            "A checkpoint was given without checkpoint_dir. Give the directory to save "
            "it in, or a CheckpointManager."
        )
    return CheckpointManager(given, directory, max_to_keep=1)


def _check_group(resolver: Any) -> process_group.ProcessGroup:
    """Returns the group of this process.

    Raises:
        RuntimeError: the resolver describes another group.
    """
    group = process_group.current()
    if resolver is None:
        return group
    spec, job = resolver.cluster_spec().as_dict(), resolver.task_type
    meant = process_group.group_of(spec, job, resolver.task_id)
    if meant.size != group.size or meant.index != group.index:
        raise RuntimeError(
            f"The cluster has {meant.size} worker(s), of which this is number "
            f"{meant.index}; this process has joined {group.size}, as number "
            f"{group.index}. Make the MultiWorkerMirroredStrategy first, with the same "
            "cluster."
        )
    return group
