"""Handles: calls of a server or worker that Ray runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.servers.carrier import SERVER, Handle
from unisono._src.servers.ray import library, shared_memory
from unisono._src.servers.ray.actors import Answer, TaskLocation
from unisono._src.servers.worker_data import (
    DatasetMaker,
    WorkerBatches,
    WorkerFunction,
)

# Objects of ours that hold what the program gave.
_OURS = (DatasetMaker, WorkerBatches, WorkerFunction)


@final
class _CallMemory:
    """The memory of one call at a time: one segment for each direction."""

    def __init__(self) -> None:
        self.request = shared_memory.Segment()
        self.reply = shared_memory.Segment()


@final
class RayHandle(Handle):
    """Reaches a server or worker that Ray runs.

    It can be sent to other processes.

    Args:
        actor: Ray's handle of it.
        kind: SERVER or WORKER.
        index: which one.
        where: where it runs.
        address: the same, for messages.
    """

    def __init__(
        self, actor: Any, kind: str, index: int, where: TaskLocation, address: str
    ) -> None:
        self._given = actor, kind, index, where, address
        self._actor, self._kind, self._index = actor, kind, index
        self.where, self.address = where, address
        # Set when the object is ended, which takes a moment.
        self.is_closed = False
        # The error of all calls, if the whole cluster is gone; and the open calls.
        self._failure: errors.UnavailableError | None = None
        self._open: set[Future[Any]] = set()
        machine = shared_memory.find_machine()
        self._is_near = bool(machine) and machine == where.machine
        # By method, because calls of one method need about the same memory.
        self._free: dict[str, list[_CallMemory]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return RayHandle, self._given

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Calls a method of the object; see `Handle`.

        Raises:
            TypeError: an argument cannot be sent.
        """
        made: Future[Any] = Future()
        # Nobody can cancel it: what was sent is done.
        made.set_running_or_notify_cancel()
        with self._lock:
            self._open.add(made)
            failure = self._failure
        if failure is not None:
            self._end(made, None, failure)
            return made
        if self.is_closed or not library.load().is_initialized():
            # Without a connection Ray would start a new cluster for the call.
            self._end(made, None, self._lost_error())
            return made
        # The life of a lane: it belongs to one call, and is free again when that call
        # has its answer. After an error it is dropped.
        lane = self._take(method)
        place = reply = None
        if lane is not None:
            reply = lane.reply.place
            size = shared_memory.measure(args)
            if size:
                lane.request.reserve(size)
                args = shared_memory.pack(args, lane.request.memory)
                place = lane.request.place
        try:
            ref = self._actor.carry.remote(method, args, place, reply)
        except TypeError as error:
            self._open.discard(made)
            raise self._unsendable_error(args, error) from None
        finish = functools.partial(self._finish, made, method, lane)
        ref.future().add_done_callback(finish)
        return made

    def fail(self, error: errors.UnavailableError) -> None:
        """Ends all open calls with an error, and all later ones."""
        with self._lock:
            self._failure = error
            waiting = list(self._open)
        for call in waiting:
            self._end(call, None, error)

    def _end(self, made: Future[Any], result: Any, error: BaseException | None) -> None:
        """Gives a call its outcome, unless it has one."""
        self._open.discard(made)
        with contextlib.suppress(InvalidStateError):
            if error is None:
                made.set_result(result)
            else:
                made.set_exception(error)

    def _take(self, method: str) -> _CallMemory | None:
        if not self._is_near:
            return None
        with self._lock:
            free = self._free.get(method)
            return free.pop() if free else _CallMemory()

    def _finish(
        self,
        made: Future[Any],
        method: str,
        lane: _CallMemory | None,
        done: Future[Answer],
    ) -> None:
        """Gives a call its outcome; runs in a thread of Ray."""
        # Nobody sees an error of this function itself, and somebody waits for `made`.
        result = None
        try:
            error = done.exception()
            if error is None:
                result = self._read(method, lane, done.result())
            else:
                # The lane is not used again: a server that only seems to be gone could
                # still write there.
                error = self._translate(error)
        except BaseException as failure:
            error = failure
        self._end(made, result, error)

    def _read(self, method: str, lane: _CallMemory | None, answer: Answer) -> Any:
        """Returns the result of a call, and keeps its memory for the next one."""
        result = answer.message
        if lane is not None:
            if answer.is_packed:
                result = shared_memory.unpack(result, lane.reply.memory)
            # The result came by Ray, because the memory was
            # too small; next time it fits.
            elif answer.wanted:
                lane.reply.reserve(answer.wanted)
            with self._lock:
                self._free.setdefault(method, []).append(lane)
        return result

    def _translate(self, error: BaseException) -> BaseException:
        """Returns the error that the object raised, or that of a lost object."""
        import ray.exceptions as ray_errors

        if isinstance(error, ray_errors.RayTaskError):
            cause = error.cause
            if isinstance(cause, BaseException):
                # The coordinator reports a lost server; the trace says no more.
                if not isinstance(cause, errors.UnavailableError):
                    cause.add_note(f"On the {self._name}:\n{str(error).rstrip()}")
                return cause
        if isinstance(error, ray_errors.RayActorError):
            return self._lost_error()
        return error

    def _lost_error(self) -> errors.UnavailableError:
        told = f"The {self._name} is gone."
        return errors.UnavailableError(told, self._kind, self._index)

    @property
    def _name(self) -> str:
        what = "parameter server" if self._kind == SERVER else "worker"
        return f"{what} {self._index} ({self.address})"

    def _unsendable_error(self, args: Any, error: TypeError) -> TypeError:
        from ray import cloudpickle

        found = find_unsendable(args, cloudpickle.dumps)
        told = f" Ray says:\n{error}"
        if found is not None:
            path, value, why = found
            told = f" This cannot: {path or value!r}, a {type(value).__name__} ({why})."
        return TypeError(
            f"An argument for the {self._name} cannot be sent to another process. "
            "Functions of datasets travel with all that they use; make files, locks, "
            "sessions and the like inside of them, and do not use variables or the "
            f"coordinator there.{told}"
        )


def find_unsendable(
    args: Any, dump: Callable[[Any], object]
) -> tuple[str, Any, str] | None:
    """Returns the first thing in a call's arguments that cannot be sent.

    Args:
        args: the arguments.
        dump: writes an object as bytes, or raises.

    Returns:
        The names by which it is found, such as ``make.reader.lock``; the object; and
        why it cannot be sent. None if all can be sent.
    """
    return _find("", args, dump, set())


def _find(
    path: str, value: Any, dump: Callable[[Any], object], seen: set[int]
) -> tuple[str, Any, str] | None:
    seen.add(id(value))
    try:
        dump(value)
    except Exception as error:
        told = str(error).partition("\n")[0]
    else:
        return None
    for name, child in _children(value):
        if id(child) in seen:
            continue
        below = ".".join(x for x in (path, name) if x)
        found = _find(below, child, dump, seen)
        if found is not None:
            return found
    # None of its parts fails by itself, so it is this object.
    return path, value, told


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields all that is sent with an object, by the names that a program uses."""
    if isinstance(value, _OURS):
        for child in vars(value).values():
            yield getattr(child, "__name__", ""), child
    elif isinstance(value, functools.partial):
        yield getattr(value.func, "__name__", ""), value.func
        yield "", [*value.args, *value.keywords.values()]
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
    elif inspect.isfunction(value):
        found = inspect.getclosurevars(value)
        yield from {**found.globals, **found.nonlocals}.items()
        yield "", value.__defaults__
    elif isinstance(value, Mapping):
        yield from ((f"[{k!r}]", v) for k, v in value.items())
    elif isinstance(value, (list, tuple)):
        yield from (("", v) for v in value)
    elif not type(value).__module__.startswith("unisono."):
        # Attributes of our own objects mean nothing to a program.
        yield from getattr(value, "__dict__", {}).items()
