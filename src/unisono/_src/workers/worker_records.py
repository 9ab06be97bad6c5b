"""The records that workers publish about themselves, and errors about their workers.

A record is bounded JSON. It says which step a worker is in and what its last ones were,
that it lives, how it ended, and whom it blames for an error that it has found.
"""

from __future__ import annotations

import contextlib
import json
import threading
import traceback
from collections.abc import Iterable
from typing import final

from unisono._src.cluster import launcher_pipes
from unisono._src.foundation import errors
from unisono._src.workers.coordination_client import RECORDS, CoordinationClient
from unisono._src.workers.step_history import StepHistory

RUNS, FAILED, LEFT = "runs", "failed", "left"
# A worker publishes so many of its last steps.
TOLD = 16
# In characters: a longer record is ignored, a longer text of an error is cut.
_LARGEST_RECORD = 1 << 15
LARGEST_TEXT = 6000
KINDS: dict[str, type[errors.WorkerError]] = {
    kind.__name__: kind
    for kind in (
        errors.WorkerError,
        errors.WorkerFailedError,
        errors.WorkerLostError,
        errors.WorkerMismatchError,
        errors.WorkerStalledError,
    )
}


@final
class OwnRecord:
    """The record that this worker publishes, and the error that it has found.

    Args:
        client: JAX's client of the coordination service.
        worker: the number of this worker.
        history: the steps of this worker.

    Attributes:
        worker: the number of this worker.
        state: whether it runs, has failed or has left.
        verdict: the error about a worker that this one has found, if any. It needs no
            lock: whoever sets it first wins, and it stays.
        has_noticed: whether the program has raised such an error.
        copy_marks: marks of the copies of mirrored variables, by step; see
            `copy_comparison`.
    """

    def __init__(
        self, client: CoordinationClient, worker: int, history: StepHistory
    ) -> None:
        self.worker = worker
        self.state = RUNS
        self.verdict: errors.WorkerError | None = None
        self.has_noticed = False
        self.copy_marks: list[tuple[int, int]] = []
        self._client = client
        self._history = history
        # The exception that ends this worker, and whom it blames for it.
        self._error = ""
        self._blame: errors.WorkerError | None = None
        self._beats = 0
        # Held while the record is published, so that an older one does not come last.
        self._lock = threading.Lock()

    def publish(self) -> None:
        """Writes the record where the others read it."""
        with self._lock:
            # It changes each time, so that the record is a sign of life.
            self._beats += 1
            self._client.key_value_set(
                f"{RECORDS}/{self.worker}", clean(self._write()), allow_overwrite=True
            )

    def try_publish(self) -> None:
        """Writes the record, unless the coordination service cannot be reached."""
        with contextlib.suppress(Exception):
            self.publish()

    def _write(self) -> str:
        recent = self._history.last(TOLD)
        return json.dumps(
            {
                "beat": self._beats,
                "step": recent[-1][0] if recent else 0,
                "state": self.state,
                "label": shorten(recent[-1][2]) if recent else "",
                "error": self._error,
                "secondary": self._blame is not None,
                "blame": _write_blame(self._blame or self.verdict),
                "recent": [(n, mark) for n, mark, _ in recent],
                "copies": self.copy_marks,
            },
            # A character takes one character then, so that the record keeps its limit.
            ensure_ascii=False,
        )

    def notice(self, error: errors.WorkerError) -> errors.WorkerError:
        """Returns an error that this worker is about to raise, and tells of it.

        The other workers will raise the same one, and the launcher learns that this
        worker has come back from whatever it did.
        """
        self.verdict = self.verdict or error
        if not self.has_noticed:
            self.has_noticed = True
            launcher_pipes.tell_state(launcher_pipes.NOTICED)
            self.try_publish()
        return error

    def fail(self, error: BaseException) -> None:
        """Tells the others that an exception ends this worker."""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self.state = FAILED
        self._blame = _find_worker_error(error)
        self._error = clean("".join(lines)[-LARGEST_TEXT:])
        launcher_pipes.tell_state(launcher_pipes.NOTICED)
        self.try_publish()

    def leave(self) -> None:
        """Tells the others that this worker has ended, unless it has failed."""
        if self.state == RUNS:
            self.state = LEFT
        self.try_publish()


@final
class WorkerRecord:
    """The state that another worker has published, and the times of its changes."""

    def __init__(self, worker: int, now: float) -> None:
        self.worker = worker
        self.beat = -1
        self.step = 0
        self.state = RUNS
        self.label = ""
        self.error = ""
        self.is_secondary = False
        # The error about another worker that this one has found: kind, worker, step
        # and message.
        self.blame: tuple[str, int | None, int | None, str] | None = None
        # The end of its process, if a launcher has told it.
        self.ending: launcher_pipes.WorkerEnding | None = None
        # Whether its launcher says that it is stopped, as by SIGSTOP.
        self.is_paused = False
        self.recent: list[tuple[int, int]] = []
        self.copy_marks: dict[int, int] = {}
        self.beaten_at = self.stepped_at = now
        # The time since which this worker waits for it. It counts from the first look
        # that finds it behind, because all workers may have paused together before.
        self.behind_since: float | None = None

    def seconds_behind(self, step: int, now: float) -> float:
        """Returns for how long the worker has been behind the worker that asks.

        Args:
            step: the step of the worker that asks.
            now: the present time.
        """
        if self.state != RUNS or self.step >= step:
            self.behind_since = None
            return 0.0
        if self.behind_since is None:
            self.behind_since = now
        return now - self.behind_since

    def note_pause(self, message: launcher_pipes.WorkerPause, now: float) -> None:
        """Notes that the worker's process is stopped, or that it goes on."""
        self.is_paused = message.is_paused
        # It could give no sign of life meanwhile.
        self.beaten_at = now

    def read(self, text: str, now: float) -> None:
        """Stores what a worker has published; ignores a malformed text."""
        if len(text) > _LARGEST_RECORD:
            return
        try:
            found = json.loads(text)
            beat, step = int(found["beat"]), int(found["step"])
            recent = [(int(a), int(b)) for a, b in found["recent"][:TOLD]]
            copies = {int(a): int(b) for a, b in found["copies"]}
            state, label = str(found["state"]), str(found["label"])
            error, secondary = str(found["error"]), bool(found["secondary"])
            blame = _read_blame(found["blame"])
        except (ValueError, KeyError, TypeError):
            return
        if beat != self.beat:
            self.beat, self.beaten_at = beat, now
        if step != self.step:
            self.step, self.stepped_at = step, now
            # It moves: the time that it may be behind begins anew.
            self.behind_since = None
        self.recent, self.state, self.label = recent, state, label
        self.copy_marks = copies
        self.error, self.is_secondary, self.blame = error, secondary, blame


@final
class PollTimes:
    """The times at which this worker has looked at the others' records.

    If it was stopped itself, or did not come to look, it has not heard the others
    meanwhile; only the silence that it could hear counts.

    Args:
        now: the time of the first look.
        longest: how many seconds there may be between two looks.
    """

    def __init__(self, now: float, longest: float) -> None:
        self._last = now
        self._longest = longest

    def limit(self, now: float) -> float:
        """Returns the time until which the records tell something."""
        return min(now, self._last + self._longest)

    def note(self, now: float, records: Iterable[WorkerRecord]) -> None:
        """Notes a look, just before the records are read."""
        gap, self._last = now - self._last, now
        if gap > self._longest:
            for r in records:
                r.beaten_at += gap


def _read_blame(told: object) -> tuple[str, int | None, int | None, str] | None:
    """Returns what a worker has published about another; raises if malformed."""
    if told is None:
        return None
    if not isinstance(told, list):
        raise TypeError(told)
    kind, worker, step, text = told
    if kind not in KINDS:
        raise ValueError(kind)
    numbers = [None if x is None else int(x) for x in (worker, step)]
    return kind, numbers[0], numbers[1], str(text)


def shorten(label: object) -> str:
    """Returns a label as a record shows it."""
    return repr(label)[:500]


def is_firm(r: WorkerRecord) -> bool:
    """Whether a worker names another one that must be to blame.

    Of two workers that differ, each names the other.
    """
    kind, worker, _, _ = r.blame or ("", None, None, "")
    return worker is not None and kind != errors.WorkerMismatchError.__name__


def clean(text: str) -> str:
    """Returns a text that can be sent, without halves of characters."""
    return text.encode("utf-8", "replace").decode()


def _write_blame(
    error: errors.WorkerError | None,
) -> tuple[str, int | None, int | None, str] | None:
    """Returns an error about another worker in the form of a record."""
    if error is None:
        return None
    text = clean(RuntimeError.__str__(error)[:LARGEST_TEXT])
    kind = type(error).__name__
    return kind if kind in KINDS else "WorkerError", error.worker, error.step, text


def _find_worker_error(error: BaseException | None) -> errors.WorkerError | None:
    """Returns the error about another worker that has led to an exception, if any."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, errors.WorkerError):
            return error
        seen.add(id(error))
        # The program may have raised another exception while it handled ours.
        error = error.__cause__ or error.__context__
    return None


def failed_error(r: WorkerRecord) -> errors.WorkerError:
    """Returns the error about a worker that raised an exception."""
    return errors.WorkerFailedError(
        f"Worker {r.worker} raised an exception after step {r.step}:\n{r.error}",
        r.worker,
        r.step,
    )


def lost_error(r: WorkerRecord, now: float) -> errors.WorkerError:
    """Returns the error about a worker that is silent."""
    why = "was killed or stopped, or its machine cannot be reached"
    if r.is_paused:
        why = "is stopped, as by SIGSTOP, as its launcher says"
    return errors.WorkerLostError(
        f"Worker {r.worker} has given no sign of life for {now - r.beaten_at:.1f} s; "
        f"its last step was {r.step} ({r.label}). Its process {why}.",
        r.worker,
        r.step,
    )


def ended_error(
    r: WorkerRecord, ending: launcher_pipes.WorkerEnding
) -> errors.WorkerError:
    """Returns the error about a worker whose process has ended."""
    said = f" It wrote:\n{ending.said}" if ending.said else ""
    return errors.WorkerLostError(
        f"The process of worker {r.worker} has ended with {ending.how}, as its "
        f"launcher says; its last step was {r.step} ({r.label}).{said}",
        r.worker,
        r.step,
    )


def left_error(r: WorkerRecord, step: int) -> errors.WorkerError:
    """Returns the error about a worker that has ended its program too early."""
    return errors.WorkerLostError(
        f"Worker {r.worker} has ended its program after step {r.step}"
        f"{f', with {r.ending.how}' if r.ending else ''}, but others are in step {step}"
        " or wait for it. All workers must take the same number of steps; is there "
        "less input for one of them?",
        r.worker,
        r.step,
    )


def mismatch_error(
    odd: int, step: int, r: WorkerRecord, mine: object, theirs: str | None = None
) -> errors.WorkerError:
    """Returns the error about a step in which this worker differs from another.

    Args:
        odd: the worker to blame.
        step: the number of the step.
        r: the record of the other worker.
        mine: the label of this worker's step.
        theirs: that of the other's step; without it, the message tells its last one.
    """
    where = f"in step {step}. Worker {r.worker}: {theirs}"
    if theirs is None:
        where = f"in step {step}, or before it. Worker {r.worker}, lately: {r.label}"
    return errors.WorkerMismatchError(
        f"The workers differ {where}. Here: {shorten(mine)}. All workers must call the "
        "same functions in the same order, with plain arrays of the same shapes, and "
        "capture the same arrays where these change variables.",
        odd,
        step,
    )


def value_error(step: int | None, label: object) -> errors.WorkerError:
    """Returns the error about a step to which workers gave different values."""
    return errors.WorkerMismatchError(
        f"The workers differ in {_name_step(step)}: {shorten(label)}. It changes "
        "variables that they share by one of these values, which is not the same on "
        "all of them. Give all workers the same value (arrays are counted from 0 in "
        "the order of the arguments), or reduce it over the replicas first.",
        None,
        step,
    )


def order_error(step: int | None, label: object) -> errors.WorkerError:
    """Returns the error about steps that did not fit, where no worker tells more."""
    return errors.WorkerMismatchError(
        f"The workers differ in {_name_step(step)}, or before it. Here: "
        f"{shorten(label)}. All workers must call the same functions in the same "
        "order, with plain arrays of the same shapes.",
        None,
        step,
    )


def _name_step(step: int | None) -> str:
    return "one of their steps" if step is None else f"step {step}"


def count_error(r: WorkerRecord, worker: int, step: int) -> errors.WorkerError:
    """Returns the error about a program that has ended after other numbers of steps."""
    return errors.WorkerMismatchError(
        f"The workers have not taken the same steps: worker {r.worker} has ended its "
        f"program after step {r.step} ({r.label}), worker {worker} after step {step}. "
        "All workers must call the same functions in the same order.",
        r.worker,
        min(step, r.step) + 1,
    )


def stalled_error(
    r: WorkerRecord, now: float, waiting: int, step: int
) -> errors.WorkerError:
    """Returns the error about a worker that lives but is behind."""
    return errors.WorkerStalledError(
        f"Worker {r.worker} lives, but is still at step {r.step} "
        f"({r.label or 'before its first'}), for {now - r.stepped_at:.0f} s, while "
        f"worker {waiting} waits in step {step}. Is its input slow, or does it do "
        "something alone? Give the strategy a larger timeout_seconds in "
        "communication_options if such pauses are meant.",
        r.worker,
        r.step,
    )


def unexplained_error(
    error: BaseException, step: int, stall: float
) -> errors.WorkerError:
    """Returns the error for a broken collective that no worker explains.

    Args:
        error: the error of the collective.
        step: the step in which it broke.
        stall: how long a worker may be behind, in seconds.
    """
    if "timed out" in str(error).lower():
        return errors.WorkerStalledError(
            f"Step {step} waited longer than {stall:g} s for the other "
            "workers, although none is behind: one of them compiles or computes "
            "that much longer. Give the strategy a larger timeout_seconds in "
            f"communication_options. {error}",
            None,
            step,
        )
    return errors.WorkerError(
        f"The workers lost each other in step {step}: {error}. No worker says "
        "that it failed; look at their outputs.",
        None,
        step,
    )
