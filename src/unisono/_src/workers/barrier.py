"""A barrier: a point of the program that no worker passes before all have reached it.

Workers meet by notes, not by a collective, so a worker may wait here while another one
writes files for minutes.
"""

from __future__ import annotations

import threading
from typing import final

from unisono._src.foundation import errors
from unisono._src.workers import watchdog, worker_notes


@final
class _Barriers:
    """The barriers of this process, which all workers reach in the same order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._board: worker_notes.Board | None = None

    def wait(self, crew: worker_notes.Crew, name: str, seconds: float) -> None:
        # One at a time, so that the rounds of all workers have the same order.
        with self._lock:
            if self._board is None:
                self._board = worker_notes.Board(crew, "barriers")
            try:
                watchdog.publish()
                notes = self._board.post(f"{watchdog.count_steps()} {name}", seconds)
            except errors.WorkerStalledError as error:
                # Nobody is silent if the last one has come only now, too late.
                late = self._board.find_silent() or [error.worker or 0]
                raise errors.WorkerStalledError(
                    f"strategy.barrier({name!r}) has waited {seconds:g} s for "
                    f"{_name_workers(late)} to call it as well.",
                    late[0],
                ) from None
        counts, names = zip(*[note.split(" ", 1) for note in notes], strict=True)
        if len(set(names)) > 1:
            raise errors.different_points_error(
                [f"strategy.barrier({n!r})" for n in names]
            )
        # First the comparison of marks, whose error names the first step that differs.
        watchdog.compare()
        if len(set(counts)) > 1:
            told = ", ".join(f"worker {i} {n}" for i, n in enumerate(counts))
            raise errors.WorkerMismatchError(
                f"The workers come to strategy.barrier({name!r}) after different "
                f"numbers of steps: {told}. All workers must call the same functions "
                "in the same order."
            )


_BARRIERS = _Barriers()


def wait(crew: worker_notes.Crew, name: str, seconds: float) -> None:
    """Return when every worker has called this.

    Args:
        crew: the workers.
        name: the name of the point in the program, the same on all workers.
        seconds: how long to wait for the others.

    Raises:
        WorkerStalledError: some workers have not come in time; it names them.
        WorkerMismatchError: the workers gave different names.
        WorkerError: a worker has failed meanwhile.
    """
    if crew.workers > 1:
        _BARRIERS.wait(crew, name, seconds)


def _name_workers(numbers: list[int]) -> str:
    told = ", ".join(str(n) for n in numbers)
    return f"worker {told}" if len(numbers) == 1 else f"the workers {told}"
