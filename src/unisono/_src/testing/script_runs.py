"""Runs a script on several numbers of replicas, each run in a process of its own."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.testing import stored_runs
from unisono._src.testing.comparison import Difference
from unisono._src.testing.records import GRADIENT, Key, Run
from unisono._src.testing.stored_runs import StoredRun

_MODULE = "unisono._src.testing.script_process"


@final
class CannotCompareError(Exception):
    """The runs of a script cannot be compared."""


@final
class ScriptRunner:
    """Runs the first steps of a script, as `runs.Runner` runs a step.

    Args:
        script: the script.
        args: its arguments.
        steps: how many calls of its compiled step to record.
        write: whether it may write checkpoints, exports and summaries.
        folder: an empty folder for files.

    Attributes:
        given: the rows that its steps get on one device.
    """

    def __init__(
        self,
        script: pathlib.Path,
        args: Sequence[str],
        steps: int,
        write: bool,
        folder: pathlib.Path,
    ) -> None:
        self._request = {
            "script": str(script),
            "args": list(args),
            "steps": steps,
            "write": write,
        }
        self._folder = folder
        self._count = 0
        self._one = self._start(1, None)
        if self._one.strategies == 0:
            raise CannotCompareError(
                f"{script} makes no MirroredStrategy or CentralStorageStrategy, so "
                "there is nothing to run on another number of replicas."
            )
        if not self._one.run.steps:
            raise CannotCompareError(
                f"{script} ended without a call of a compiled function that changes "
                "variables of its strategy, and without a batch of Keras' fit. "
                "Decorate its step with unisono.function, and make its variables in "
                "the scope."
            )
        self.given = self._one.batches

    def run(
        self,
        replicas: int,
        given: Sequence[list[np.ndarray]],
        fresh: bool = False,
        digits: int = 0,
    ) -> Run:
        """Runs the script, with its own batches or others."""
        if given is self.given and replicas == 1 and not (fresh or digits):
            return self._one.run
        if given is not self.given:
            return self._start(replicas, given, digits).run
        found = self._start(replicas, None, digits)
        self._check_batches(found, replicas)
        return found.run

    def _check_batches(self, found: StoredRun, replicas: int) -> None:
        """Raises if the steps of two runs got other rows, in whatever order."""
        ours = [[len(x) for x in batch] for batch in self.given]
        theirs = [[len(x) for x in batch] for batch in found.batches]
        if ours != theirs or len(found.run.steps) != len(self._one.run.steps):
            raise CannotCompareError(
                f"The steps get other batches on {replicas} replicas than on one: rows "
                f"{theirs}, not {ours}. Give the script a global batch size that does "
                "not depend on the number of replicas."
            )
        for step, (one, many) in enumerate(zip(self.given, found.batches, strict=True)):
            if any(_sort(a) != _sort(b) for a, b in zip(one, many, strict=True)):
                raise CannotCompareError(
                    f"Step {step} gets other rows on {replicas} replicas than on one. "
                    "Read the data in an order that does not depend on the number of "
                    "replicas: shuffle with a seed, before batch."
                )

    def _start(
        self,
        replicas: int,
        given: Sequence[list[np.ndarray]] | None,
        digits: int = 0,
    ) -> StoredRun:
        """Runs the script in a process."""
        self._count += 1
        folder = self._folder / f"run_{self._count}"
        folder.mkdir()
        before = self._folder / "run_1" / "before.npz"
        if before.exists():
            (folder / "initial.npz").write_bytes(before.read_bytes())
        if given is not None:
            stored_runs.write_batches(folder / "batches.npz", given)
        steps = self._request["steps"] if given is None else max(len(given), 1)
        request = self._request | {
            "replicas": replicas,
            "steps": steps,
            "digits": digits,
        }
        start_process(folder, request)
        return stored_runs.read(folder)

    def find_half_precision(self) -> float:
        """Returns what rounding is taken for at least, where rows are not known."""
        return 0.0 if any(map(len, self.given)) else 5e-6

    def is_first_only(self, name: str) -> bool:
        """Whether a variable keeps the value of the first replica."""
        return name in self._one.first_only

    def find_line(self, difference: Difference) -> str | None:
        """Returns the line that made a value, if it is known."""
        kind = GRADIENT if difference.kind == GRADIENT else ""
        return self._one.lines.get(Key(kind, difference.name))


def start_process(folder: pathlib.Path, request: dict[str, Any]) -> None:
    """Runs a script in a process, which leaves its record in a folder.

    Raises:
        CannotCompareError: it failed.
    """
    path = folder / "request.json"
    path.write_text(json.dumps(request | {"folder": str(folder)}))
    done = subprocess.run(
        [sys.executable, "-m", _MODULE, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not (folder / "record.json").exists():
        raise CannotCompareError(
            f"{request['script']} failed on {request['replicas']} replicas with the "
            f"status {done.returncode}:\n{done.stderr[-3000:]}"
        )


def _sort(rows: np.ndarray) -> list[bytes]:
    """Returns the rows of an array as bytes, in an order of their own."""
    return sorted(row.tobytes() for row in rows)
