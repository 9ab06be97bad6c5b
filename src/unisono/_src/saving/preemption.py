"""Ending in order when a machine is about to be taken away: save, and ask to go on.

A worker that is told to end tells the others. All of them settle on one place in the
program, between two steps, that none has passed; there they save together, and end.
Nothing but notes is exchanged until then, by a thread, so that a step, an evaluation,
a compilation or a wait for input goes on undisturbed to its end.
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
from typing import Any, ParamSpec, TypeVar

from jax._src import distributed

from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.foundation import errors, options
from unisono._src.foundation.public_names import publish
from unisono._src.saving.checkpoint.checkpoint import Checkpoint
from unisono._src.saving.checkpoint.manager import CheckpointManager
from unisono._src.workers import process_group, worker_notes

_TICK_SECONDS = 0.2
_AGREE_SECONDS = 30.0
_RUNS = "checkpointed_runs"
_log = logging.getLogger("unisono")
# Tells apart the handlers of a program; the same on all of its workers.
_numbers = itertools.count()
_P = ParamSpec("_P")
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class TerminationConfig:
    """What the end of a machine looks like, and what to do then.

    Args:
        termination_watcher_fn: asked about once a second, by a thread, whether this
            worker is about to be ended. Without it SIGTERM says so.
        exit_fn: called on every worker after the last save. Default: exit with code 42.
        grace_period: how many seconds lie between the notice and the end. With 0, the
            default, workers save and exit at once. Otherwise they save at once, go on,
            and save again and exit shortly before the time is over.
        save_fn: called on every worker in place of the manager's `save`, with the
            arguments of `save_checkpoint_if_preempted`.
    """

    termination_watcher_fn: Callable[[], bool] | None = None
    exit_fn: Callable[[], Any] | None = None
    grace_period: float | None = None
    save_fn: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.grace_period is not None and self.grace_period < 0:
            raise ValueError(
                "grace_period is a number of seconds, at least 0; received "
                f"{self.grace_period}."
            )


class PreemptionCheckpointHandler:
    """Saves on all workers when one of them is told to end, and exits.

    When it is made it restores the latest checkpoint, if there is one. From then on
    SIGTERM no longer ends the process, but is noted; every worker must therefore call
    `run` for each of its steps. Once a worker has been told to end, all of them save
    before the same call of `run`, and exit with code 42.

    What the function takes from iterators should be taken inside it: elements that are
    taken before `run` count as used in the checkpoint.

    Args:
        cluster_resolver: that of the strategy; None for one process.
        checkpoint_or_checkpoint_manager: what to save. It gets an attribute
            ``checkpointed_runs``, which counts calls of `run`.
        checkpoint_dir: where, if a checkpoint is given; the newest one is kept.
        termination_config: how to notice the end, and what to do.

    Raises:
        ValueError: there is a checkpoint without a directory.
        RuntimeError: the workers have not joined yet, or this is not the main thread.

    >>> import tempfile, unisono
    >>> v = unisono.Variable(0.0)
    >>> handler = PreemptionCheckpointHandler(None, Checkpoint(v=v), tempfile.mkdtemp())
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
        self._manager = _manager(checkpoint_or_checkpoint_manager, checkpoint_dir)
        self._config = termination_config or TerminationConfig()
        self._group = _joined(cluster_resolver)
        self._topic = f"preemption {next(_numbers)}"
        self._noticed_at: float | None = None
        self._changed = threading.Condition()
        self._passed = 0  # Places between steps that this worker has gone past.
        self._round = 0  # 0 until the first save; 1 while a grace period lasts.
        self._is_frozen = False
        self._place: int | None = None
        self._failure: BaseException | None = None
        self._slowest = self._saved_in = 0.0
        self._over = threading.Event()
        self._before: Any = None
        self._thread: threading.Thread | None = None
        if not hasattr(self._checkpoint, _RUNS):
            setattr(self._checkpoint, _RUNS, 0)
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
        """How often `run` has ended, also before the program was started again."""
        return int(getattr(self._checkpoint, _RUNS))

    def run(
        self,
        distributed_train_function: Callable[_P, _Result],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _Result:
        """Call a function, after a save and exit if it is time for that.

        Args:
            distributed_train_function: makes one step, on all workers.
            *args: its arguments.
            **kwargs: its arguments by name.

        Returns:
            What the function returns.
        """
        self._stop_here((), {})
        begun = time.monotonic()
        result = distributed_train_function(*args, **kwargs)
        self._count(begun)
        return result

    def save_checkpoint_if_preempted(self, *args: Any, **kwargs: Any) -> None:
        """Save and exit if a worker has been told to end; in place of `run`.

        Every worker must call it equally often, such as after each step. Each call
        counts in `total_run_calls`.

        Args:
            *args: for the function that saves.
            **kwargs: the same, by name.
        """
        self._count(time.monotonic())
        self._stop_here(args, kwargs)

    @contextlib.contextmanager
    def watch_preemption_scope(self) -> Iterator[None]:
        """A block, such as an epoch, after which workers save and exit if it is time.

        Every worker must go through as many of these blocks.
        """
        yield
        self.save_checkpoint_if_preempted()

    def close(self) -> None:
        """Give SIGTERM its former meaning, and stop watching."""
        self._over.set()
        atexit.unregister(self.close)
        if self._thread is not None:
            self._thread.join(5.0)
        if self._before is not None:
            with contextlib.suppress(ValueError):  # Not in the main thread.
                signal.signal(signal.SIGTERM, self._before)
            self._before = None

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
        self._before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        # Nothing else: this may run in the middle of anything.
        if self._noticed_at is None:
            self._noticed_at = time.monotonic()

    def _is_due(self) -> bool:
        """Whether this worker was told to end, and the time for this save has come."""
        if self._noticed_at is None:
            return False
        if self._round == 0:
            return True
        # Time for the steps until all stop, and for saving.
        needed = 2 * self._slowest + 2 * self._saved_in + 1.0
        return time.monotonic() > self._noticed_at + self._grace - needed

    @property
    def _grace(self) -> float:
        return self._config.grace_period or 0.0

    def _watch(self) -> None:
        """The thread: ask, tell the others, and settle with them where to stop."""
        asked_at = 0.0
        while not self._over.wait(_TICK_SECONDS):
            try:
                now = time.monotonic()
                ask = self._config.termination_watcher_fn
                if ask is not None and now > asked_at + 1.0 and not self._noticed_at:
                    asked_at = now
                    self._noticed_at = now if ask() else None
                if self._group.size > 1 and not self._is_frozen and self._is_told():
                    self._settle()
            except BaseException as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return

    def _is_told(self) -> bool:
        """Whether a worker is to end; if this one is, the others are told."""
        client: Any = distributed.global_state.client
        where = f"unisono/{self._topic}/{self._round}/"
        if self._is_due():
            client.key_value_set(
                f"{where}{self._group.index}", "told", allow_overwrite=True
            )
            return True
        return bool(client.key_value_dir_get(where))

    def _settle(self) -> None:
        """Agree on the next place that no worker has gone past."""
        with self._changed:
            self._is_frozen = True
            passed = self._passed
        notes = worker_notes.Board(self._group, f"{self._topic}, save {self._round}")
        told = [int(note) for note in notes.post(str(passed), _AGREE_SECONDS)]
        with self._changed:
            self._place = max(told)
            self._changed.notify_all()

    # Stopping.

    def _stop_here(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Go past a place between steps, or save there, and exit."""
        if self._goes_past():
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
                self._round, self._is_frozen, self._place = 1, False, None
                self._passed += 1
            return
        self.close()
        leave = self._config.exit_fn or _exit
        leave()

    def _save(self, *args: Any, **kwargs: Any) -> None:
        self._manager.save(*args, **{"check_interval": False, **kwargs})
        self._manager.sync()

    def _goes_past(self) -> bool:
        """Count a place between steps, unless it is the one to stop at."""
        if self._over.is_set():
            return True
        if self._group.size == 1:
            if self._failure is not None:
                raise self._failure
            return not self._is_due()
        # The thread counts with the lock held: no place is passed that it did not see.
        with self._changed:
            is_ending = self._is_frozen or self._failure is not None
            if is_ending and self._passed >= self._settled():
                return False
            self._passed += 1
            return True

    def _settled(self) -> int:
        """The place to stop at, when all workers have settled on it."""
        self._changed.wait_for(
            lambda: self._place is not None or self._failure is not None,
            2 * _AGREE_SECONDS,
        )
        if self._failure is not None:
            raise self._failure
        if self._place is None:
            raise errors.WorkerStalledError(
                "The workers did not settle on a place to save within "
                f"{2 * _AGREE_SECONDS:g} s, although one of them is to end."
            )
        return self._place


def _exit() -> None:
    sys.exit(options.RESTART_CODE)


def _manager(given: Any, directory: Any) -> CheckpointManager:
    if isinstance(given, CheckpointManager):
        return given
    if not isinstance(given, Checkpoint):
        raise TypeError(
            "Expected a unisono.train.Checkpoint or CheckpointManager, received "
            f"{type(given).__name__}."
        )
    if directory is None:
        raise ValueError(
            "A checkpoint was given without checkpoint_dir. Say where to save it, or "
            "give a CheckpointManager."
        )
    return CheckpointManager(given, directory, max_to_keep=1)


def _joined(resolver: Any) -> process_group.ProcessGroup:
    """The group of this process, which must be the one that the resolver means."""
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


publish(
    "unisono.distribute.experimental", PreemptionCheckpointHandler, TerminationConfig
)
