"""The program that a worker process runs first.

It is a file on its own, which imports the standard library only.

``child.py PARENT exec PROGRAM ARG...`` becomes another program, which the system ends
if the launcher dies. ``child.py PARENT call REQUEST RESULT`` imports a module, calls a
function with JSON arguments, and leaves its result as JSON: nothing is pickled.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import sys
import traceback
from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def die_with(parent: int) -> None:
    """Asks Linux to end this process when the launcher ends; exits if it has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        # The launcher may have ended before the call above, which then has no effect.
        if os.getppid() != parent:
            os._exit(1)


def find(target: str) -> Any:
    """Returns the function that ``module:function`` or ``path.py:function`` names."""
    module_name, _, function_name = target.rpartition(":")
    if module_name.endswith(".py"):
        name = os.path.splitext(os.path.basename(module_name))[0]
        spec = importlib.util.spec_from_file_location(name, module_name)
        if spec is None or spec.loader is None:
            raise ImportError(f"Cannot import {module_name!r}.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(module_name)
    found: Any = module
    for part in function_name.split("."):
        found = getattr(found, part)
    return found


def call(request_fd: int, result_fd: int) -> int:
    """Calls the function of a request and writes its result; returns the exit status.

    The status is 0 if the function returned, and 1 if it raised.
    """
    request = json.loads(_read(request_fd))
    # After a restart, the file may have the answer of the start before.
    os.ftruncate(result_fd, 0)
    os.lseek(result_fd, 0, os.SEEK_SET)
    sys.path[:] = request["path"]
    sys.argv = [request["target"]]
    try:
        value = find(request["target"])(*request["args"], **request["kwargs"])
        answer = json.dumps({"result": value}, allow_nan=True)
    except Exception as error:
        # The user's traceback begins after the frame of this file.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        # A worker that belongs to a group tells its peers in this hook what ends it.
        sys.excepthook(type(error), error, error.__traceback__)
        told = "".join(traceback.format_exception(error))
        answer = json.dumps({"error": f"{type(error).__name__}: {error}", "text": told})
        _write(result_fd, answer)
        return 1
    _write(result_fd, answer)
    return 0


def _read(descriptor: int) -> bytes:
    # `pread` takes a position: the workers share the file's own one.
    parts, place = [], 0
    while part := os.pread(descriptor, 1 << 16, place):
        parts.append(part)
        place += len(part)
    return b"".join(parts)


def _write(descriptor: int, text: str) -> None:
    rest = memoryview(text.encode())
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def main(arguments: list[str]) -> None:
    """Runs one of the two modes in the module's docstring."""
    parent, mode, *rest = arguments
    if mode == "exec":
        die_with(int(parent))
        os.execv(rest[0], rest)
    sys.exit(call(int(rest[0]), int(rest[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
