"""Runs a function as several workers, from a program or a notebook."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

from unisono._src.cli.launch import group, launch_plan, output, runs
from unisono._src.foundation import errors

_TARGET = re.compile(r"(?:[\w.]+|.+\.py):[A-Za-z_][\w.]*")
_CHILD = str(pathlib.Path(__file__).with_name("child.py"))


def launch(
    target: str,
    n: int = 1,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    devices: int | None = None,
    platform: str = "auto",
    restarts: int = 0,
    output_dir: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    timeout_seconds: float | None = None,
    grace_seconds: float = 15.0,
    stop_seconds: float = 30.0,
    stopped_seconds: float | None = None,
    check_replicas: int | None = None,
) -> list[Any]:
    """Runs a function as `n` workers on this machine, and returns their results.

    Every worker is a process that imports the module and calls the function. The
    variable TF_CONFIG says which worker it is. Arguments and results are sent as JSON;
    code is not sent. A function in a notebook cannot be imported: write its cell to a
    file.

    >>> import unisono
    >>> unisono.launch("math:hypot", 2, args=(3, 4), quiet=True)
    [5.0, 5.0]

    Args:
        target: ``"module:function"``, or ``"path/to/file.py:function"``.
        n: the number of workers.
        args: positional arguments, the same for every worker.
        kwargs: keyword arguments, the same for every worker.
        devices: the number of devices per worker; on a CPU they are virtual devices.
        platform: ``"auto"``, ``"cpu"``, ``"gpu"`` or ``"tpu"``.
        restarts: how often the whole group may be started again after a failure.
        output_dir: a directory for the workers' output, which is then not printed.
        quiet: whether to print nothing.
        timeout_seconds: how long the workers may take after each start; None for no
            limit.
        grace_seconds: after a failure, how long the other workers may take to end.
        stop_seconds: after a signal, how long a worker may take to end.
        stopped_seconds: how long a worker may be stopped, for example by SIGSTOP,
            before it is killed; 0 for no limit. The default is the environment variable
            ``UNISONO_STOPPED_SECONDS``, or 10.
        check_replicas: the number of steps after which the workers compare their copies
            of mirrored variables again; 0 for never. The default is the environment
            variable ``UNISONO_CHECK_REPLICAS``, or 0.

    Returns:
        The results of the workers, in worker order.

    Raises:
        LaunchError: a worker failed, or the workers took too long. The error has the
            traceback of the worker that failed first.
        TypeError: `target` is not a string, or an argument cannot be written as JSON.
        ValueError: `target` or another argument is malformed, or there are too few
            devices.
    """
    text = _request_text(target, args, kwargs or {})
    is_number = isinstance(n, int) and not isinstance(n, bool)
    if not is_number or not 1 <= n <= launch_plan.MAX_WORKERS:
        raise ValueError(
            f"n must be 1 to {launch_plan.MAX_WORKERS} workers, received {n!r}."
        )
    directory = None if output_dir is None else pathlib.Path(output_dir)
    with contextlib.ExitStack() as files:
        # These files have no names, so that nothing is left of them in any case.
        asked, *answers = (
            files.enter_context(tempfile.TemporaryFile()) for _ in range(n + 1)
        )
        asked.write(text.encode())
        asked.flush()
        request = runs.RunRequest(
            argv=(sys.executable, _CHILD, str(os.getpid()), "call"),
            size=runs.GroupSize(n),
            devices=launch_plan.Devices(_find_platform(platform), devices),
            restarts=restarts,
            grace_seconds=grace_seconds,
            stop_seconds=stop_seconds,
            stopped_seconds=stopped_seconds,
            check_replicas=check_replicas,
            timeout_seconds=timeout_seconds,
            descriptors=[(asked.fileno(), answer.fileno()) for answer in answers],
            is_called=True,
        )
        with output.open_output(directory, quiet) as out:
            outcome = runs.run(request, out)
        if outcome.signal is not None:
            # Now the program's own handler runs, such as to raise KeyboardInterrupt.
            signal.raise_signal(outcome.signal)
        return _read_results(target, outcome, answers)


def _find_platform(name: str) -> launch_plan.Platform:
    try:
        return launch_plan.Platform(name)
    except ValueError:
        known = ", ".join(repr(p.value) for p in launch_plan.Platform)
        raise ValueError(
            f"platform must be one of {known}, received {name!r}."
        ) from None


def _request_text(
    target: object, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    if not isinstance(target, str):
        raise TypeError(
            "Name the function as 'module:function', so that workers can import it; "
            f"received {target!r}. In a notebook, write it to a file first "
            "(%%writefile train.py) and pass 'train.py:function'."
        )
    if not _TARGET.fullmatch(target) or target.startswith("__main__:"):
        raise ValueError(
            f"Expected 'module:function' or 'path/to/file.py:function', received "
            f"{target!r}. Workers import it, so it cannot be in __main__."
        )
    request = {
        "target": target,
        "args": list(args),
        "kwargs": dict(kwargs),
        # An empty entry means the current directory, which may be another one there.
        "path": [p or os.getcwd() for p in sys.path],
    }
    try:
        return json.dumps(request)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Arguments travel to workers as JSON, and these cannot: {error}. Pass "
            "numbers, strings, lists and dictionaries, such as a path instead of data."
        ) from None


def _read_results(
    target: str, outcome: group.GroupOutcome, answers: Sequence[IO[bytes]]
) -> list[Any]:
    said = [_read_answer(file) for file in answers]
    if outcome.timed_out:
        raise errors.LaunchError(
            f"{target} did not end in time, and was stopped.", None, outcome.code
        )
    if outcome.failures:
        first = outcome.failures[0]
        index = first.worker.command.index
        answer = said[index] or {}
        text = answer.get("text") or "\n".join(first.traceback)
        how = group.describe_end(first.worker)
        why = f": {answer['error']}" if "error" in answer else ""
        raise errors.LaunchError(
            f"{first.worker.name} failed first, with {how}{why}\n{text}".rstrip(),
            index,
            first.code,
            text,
        )
    silent = [i for i, answer in enumerate(said) if answer is None]
    if silent:
        raise errors.LaunchError(
            f"Worker(s) {silent} ended with exit code 0 before {target} returned, such "
            "as by sys.exit(); there is no result.",
            silent[0],
            0,
        )
    return [answer["result"] for answer in said if answer]


def _read_answer(file: IO[bytes]) -> dict[str, Any] | None:
    file.seek(0)
    try:
        answer = json.loads(file.read())
    except ValueError:
        return None  # The worker ended before it could write, or while it did.
    return answer if isinstance(answer, dict) else None
