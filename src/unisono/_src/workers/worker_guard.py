"""Finds workers that are late, are gone, or do something else than the others.

Python cannot interrupt a worker that waits for another in a collective. So each worker
publishes a small record of itself: the number and kind of its last steps, a beat that
says that it lives, and in the end how it ended (`worker_records`). A thread compares
the records a few times a second (`peers`). The program raises the thread's finding at
its next step, or with the error of a collective that broke. See docs/decisions/0013.
Where a launcher has started the workers, it also tells each of them at once who has
ended (docs/decisions/0023).

A collective of Gloo that waits for another worker cannot be interrupted. The other one
may live and still never come, because it has raised an error about a third one. Then
only an end of the connection ends the wait (docs/decisions/0028).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, final

import jax

from unisono._src.cluster import launcher_pipes
from unisono._src.foundation import errors
from unisono._src.workers.coordination_client import CoordinationClient
from unisono._src.workers.copy_comparison import CopyComparison
from unisono._src.workers.peers import Peers, StepComparison, WaitLimits
from unisono._src.workers.process_exit import ExitHooks
from unisono._src.workers.step_agreement import StepAgreement, StepForecast
from unisono._src.workers.step_history import StepLedger
from unisono._src.workers.worker_records import OwnRecord

OFF, ASYNC, STRICT = "off", "async", "strict"
# A result may still come so long after a peer was found to be gone, because other steps
# are in flight.
_RESULT_SECONDS = 0.5
# A wait for a result sleeps this part of the time that it has lasted, between these
# limits. So it lasts about a hundredth longer than without the guard.
_SLEEP_PART, _SLEEP_LEAST, _SLEEP_MOST = 0.02, 5e-5, 0.02
# The thread takes so many looks at the newest arrays, which the program may replace and
# delete at any time.
_GLANCES = 5


def check_mode(mode: str) -> str:
    """Returns `mode`; raises if it is no mode of the guard."""
    if mode not in (OFF, ASYNC, STRICT):
        raise ValueError(
            f"Expected guard to be 'async', 'strict' or 'off', received {mode!r}."
        )
    return mode


@final
class StepResults:
    """The results of this worker's steps.

    Args:
        own: the record of this worker.
        peers: the other workers.

    Attributes:
        waits_in_python: whether this worker waits for results in Python.
        newest: the newest results of a step, for the thread that watches: a list of
            cells with an `array` each, or a tree of arrays.
    """

    def __init__(self, own: OwnRecord, peers: Peers) -> None:
        self.waits_in_python = False
        self.newest: object = None
        self._own = own
        self._peers = peers

    def wait_for(self, array: jax.Array) -> None:
        """Waits until an array is computed, if this worker waits in Python.

        Raises:
            WorkerError: a worker is gone, and the array does not come.
        """
        own = self._own
        found = own.verdict
        if isinstance(found, errors.WorkerMismatchError) and not own.has_noticed:
            # The program learns it as early as it can. Afterwards it may read what was
            # computed before: the ledger tells which steps were right.
            raise own.notice(found)
        if not self.waits_in_python:
            return
        # JAX's declaration of arrays leaves `is_ready` out.
        is_ready: Callable[[], bool] = array.is_ready  # type: ignore[attr-defined]
        if is_ready():
            return
        # JAX would wait in native code, which Python cannot interrupt. A thread that
        # did so for this one could come back while Python ends, which aborts.
        since, gone_since = time.monotonic(), float("inf")
        while not is_ready():
            now = time.monotonic()
            if own.verdict is not None:
                gone_since = min(gone_since, now)
                if now > gone_since + _RESULT_SECONDS:
                    raise own.notice(own.verdict)
            pause = _SLEEP_PART * (now - since)
            time.sleep(min(max(pause, _SLEEP_LEAST), _SLEEP_MOST))

    def look_at_newest(self) -> None:
        """Notices that a step has failed, for a program that reads no results.

        An array that depends on a failed one has failed, too, so the newest ones tell
        about all steps before.
        """
        for _ in range(_GLANCES):
            if self._own.verdict is not None:
                return
            try:
                for x in _arrays_of(self.newest):
                    if x.is_ready():  # type: ignore[attr-defined]
                        x.block_until_ready()
                return
            except Exception as error:
                # The next step may have taken the array over meanwhile.
                found = self._peers.find_reason(error)
                if isinstance(found, errors.WorkerError):
                    self._own.verdict = self._own.verdict or found
                    return


@final
class Guard:
    """Watches the other workers of the group.

    Args:
        client: JAX's client of the coordination service.
        worker: the number of this worker.
        workers: the number of all workers.
        mode: ``"async"`` or ``"strict"``.
        stall_seconds: how long a worker may be behind the others.
        read_claim: returns a note about another process that is the same worker and
            has not joined, if there is one.

    Attributes:
        is_strict: whether all workers agree on each step before they take it.
        own: what this worker tells the others, and the error that it has found.
        peers: what it knows of the others.
        steps: compares the steps of the workers.
        results: waits for the results of steps.
        connections: the connections with the other workers.
        copies: compares the copies of mirrored variables, if the program asks for it.
    """

    def __init__(
        self,
        client: CoordinationClient,
        worker: int,
        workers: int,
        mode: str,
        stall_seconds: float,
        read_claim: Callable[[], str | None] = lambda: None,
    ) -> None:
        limits = WaitLimits.of(workers, stall_seconds)
        self.steps = StepComparison(client, worker, limits.tick / 10)
        self._history = self.steps.history
        self.own = OwnRecord(client, worker, self._history)
        self.peers = Peers(client, workers, limits, self.own, self.steps, read_claim)
        self.results = StepResults(self.own, self.peers)
        self.connections = WorkerConnections(client, worker)
        self.copies = CopyComparison(client, worker, limits.tick)
        self.is_strict = mode == STRICT
        self._forecast = StepForecast()
        self._agreement = StepAgreement(client, self.own, self.peers, stall_seconds)
        self._exit = ExitHooks(self.own, self.peers, self._history, limits.tick / 5)
        self._thread = _WatchThread(self, limits.tick)

    @property
    def step(self) -> int:
        """The number of the step that this worker is in."""
        return self._history.step

    def start(self) -> None:
        """Starts the thread that watches."""
        self.own.publish()
        self._exit.start()
        atexit.register(self.close)
        self._thread.start()

    def enter(
        self, label: object, is_seen: bool = False, ledger: StepLedger | None = None
    ) -> None:
        """Notes that this worker goes into a step that all must take.

        Args:
            label: an object whose `repr` differs between steps of different kinds or
                shapes.
            is_seen: whether the program sees numbers while the step runs. The workers
                agree on such a step before they take it.
            ledger: the ledger that counts the step, if one does.

        Raises:
            WorkerError: the thread has found an error meanwhile; with the strict mode,
                or if the steps before do not foretell this one, also if the workers
                differ in it. See `step_agreement`.
        """
        if self.own.verdict is not None:
            raise self.own.notice(self.own.verdict)
        kind = label if isinstance(label, str) else repr(label)
        self._history.add(label, kind, ledger)
        if not self._forecast.expects(kind) or self.is_strict or is_seen:
            self._agreement.agree(self._history)

    def leave(self) -> None:
        """Takes back an `enter`, because the step was not taken."""
        self._history.take_back()
        self._forecast.take_back()

    def check_marks(self, wait: bool = False) -> None:
        """Raises if the workers have differed in a step that is done.

        Args:
            wait: whether to wait for the steps that are not done yet.

        Raises:
            WorkerMismatchError: they have.
        """
        if wait:
            for array in self.steps.find_unfinished():
                self.results.wait_for(array)
                # A step that has failed says so where its results are read.
                with contextlib.suppress(RuntimeError, ValueError):
                    array.block_until_ready()
        found = self.steps.find_difference(self.peers.look_again)
        if found is not None:
            raise self.own.notice(found)

    def compare(self) -> None:
        """Compares what all workers have done; each must have published it before.

        Raises:
            WorkerMismatchError: they have not done the same.
            WorkerError: another error was found meanwhile.
        """
        self.check_marks(wait=True)
        found = self.peers.look_again()
        if found is not None:
            raise self.own.notice(found)

    def compare_copies(self, must_end: bool = False) -> None:
        """Looks for copies of mirrored variables that differ; see `own.verdict`.

        Args:
            must_end: whether this worker ends, and cannot wait for the others.
        """
        told = self.peers.copy_marks
        found = self.copies.find_difference(told, must_end)
        self.own.verdict = self.own.verdict or found

    def tell_copies(self) -> None:
        """Has the next record say what is known of this worker's copies."""
        self.own.copy_marks = self.copies.collect()

    def hear(self, worker: int, message: launcher_pipes.LauncherMessage) -> None:
        """Notes what the launcher says of a worker's process: it ended, or stopped."""
        if self.peers.hear(worker, message):
            self._thread.wake()

    def abandon(self) -> None:
        """Ends watching in a forked child, which has none of the threads."""
        self._thread.abandon()
        self._exit.abandon()

    def close(self) -> None:
        """Stops watching, and tells the others that this worker has left."""
        # The thread first, so that it does not publish after the last record.
        if self._thread.stop():
            self._exit.stop()
            self.tell_copies()
            self.copies.tell_last()
            self._exit.leave(lambda: self.compare_copies(must_end=True))


@final
class _WatchThread:
    """The thread that looks at the other workers again and again.

    Args:
        guard: the guard whose workers it looks at.
        seconds: how long it is between two looks.
    """

    def __init__(self, guard: Guard, seconds: float) -> None:
        self._guard = guard
        self._seconds = seconds
        # When the first look was that found an error.
        self._found_at: float | None = None
        self._is_over, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="unisono guard", daemon=True
        )

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Has the thread look now."""
        self._wake.set()

    def abandon(self) -> bool:
        """Has the thread end, without waiting for it; returns whether it was to run."""
        was_running = not self._is_over.is_set()
        self._is_over.set()
        return was_running

    def stop(self) -> bool:
        """Ends the thread, and waits for its end; returns whether it was to run."""
        was_running = self.abandon()
        if was_running:
            self._wake.set()
            self._thread.join(5.0)
        return was_running

    def _run(self) -> None:
        while True:
            self._wake.wait(self._seconds)
            self._wake.clear()
            if self._is_over.is_set():
                return
            self._look()
            with contextlib.suppress(Exception):
                self._free_waiting()

    def _look(self) -> None:
        """Compares the records and the steps, and looks at the newest results."""
        guard, own = self._guard, self._guard.own
        try:
            guard.tell_copies()
            guard.peers.exchange()
            find = guard.steps.find_difference
            own.verdict = own.verdict or find(guard.peers.look_again)
            guard.compare_copies()
            guard.results.look_at_newest()
        except Exception:
            # The coordination service cannot be reached. If it stays so, the next
            # collective fails and says so; this thread tries again. What the launcher
            # has told counts without the service.
            guard.peers.note_ended()

    def _free_waiting(self) -> None:
        """Breaks the collectives in which this worker waits, after a verdict.

        It may wait for a worker that lives, but has found the same error and raised it.
        """
        now = time.monotonic()
        if self._guard.own.verdict is not None:
            self._found_at = self._found_at or now
            if now > self._found_at + _RESULT_SECONDS:
                self._guard.connections.shut()


def _arrays_of(values: object) -> list[jax.Array]:
    """Returns the arrays of cells, or of a tree, that no other step has taken over."""
    if isinstance(values, list) and values and hasattr(values[0], "array"):
        values = [cell.array for cell in values]
    arrays = [x for x in jax.tree.leaves(values) if isinstance(x, jax.Array)]
    return [x for x in arrays if not x.is_deleted()]


_PLACE = "unisono/connections/"
# Gloo does not tell its connections, so the system is asked. It tells them on Linux.
_DESCRIPTORS = pathlib.Path("/proc/self/fd")
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LISTENS = "0A"


@final
class _OwnSocket(NamedTuple):
    """A socket of this process, with its addresses in the spelling of the system."""

    descriptor: int
    local: str
    remote: str
    state: str


@final
class WorkerConnections:
    """The connections of this worker to others, known by where workers listen.

    Args:
        client: JAX's client of the coordination service.
        worker: the number of this worker.
    """

    def __init__(self, client: CoordinationClient, worker: int) -> None:
        self._client = client
        self._own = f"{_PLACE}{worker}"

    @contextlib.contextmanager
    def find_listener(self) -> Iterator[None]:
        """Tells all workers where this process listens since the block has begun.

        Gloo opens its port when the backend starts, and connects later.
        """
        before = _list_listening()
        yield
        found = sorted(_list_listening() - before)
        self._client.key_value_set(self._own, json.dumps(found), allow_overwrite=True)

    def shut(self) -> None:
        """Ends all connections with other workers; what waits for them fails at once.

        It leaves alone those to the coordination service and those of the program.
        """
        told = self._client.key_value_dir_get(_PLACE[:-1])
        listeners = {str(x) for _, text in told for x in json.loads(text)}
        for found in _list_connections():
            if found.state != _LISTENS and listeners & {found.local, found.remote}:
                with contextlib.suppress(OSError):
                    _shut(found.descriptor)


def _shut(descriptor: int) -> None:
    # A connection ends for all copies of its descriptor, and this one is closed here.
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _list_listening() -> set[str]:
    """Returns the addresses at which this process takes connections."""
    return {c.local for c in _list_connections() if c.state == _LISTENS}


def _list_connections() -> list[_OwnSocket]:
    """Returns the connections and listeners of this process; none if not known."""
    try:
        own = dict(_number_sockets())
        texts = [pathlib.Path(table).read_text("ascii") for table in _TABLES]
    except OSError:
        return []
    rows = [line.split() for text in texts for line in text.splitlines()]
    # Columns 1 to 3 are the addresses and the state, 9 is the socket's number.
    return [
        _OwnSocket(own[r[9]], r[1], r[2], r[3])
        for r in rows
        if len(r) > 9 and r[9] in own
    ]


def _number_sockets() -> Iterator[tuple[str, int]]:
    """Yields the system's number of each socket of this process, and a descriptor."""
    for path in _DESCRIPTORS.iterdir():
        # Another thread may have closed it meanwhile.
        with contextlib.suppress(OSError):
            kind, _, number = os.readlink(path).partition(":")
            if kind == "socket":
                yield number.strip("[]"), int(path.name)
