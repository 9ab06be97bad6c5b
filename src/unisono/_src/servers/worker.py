"""A worker: runs the programs of closures, with its own datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, final

import jax
import numpy as np

from unisono._src.execution import host_inputs, signature
from unisono._src.foundation import ambient, errors
from unisono._src.servers import messages
from unisono._src.servers.carrier import Handle
from unisono._src.servers.messages import (
    INDEX,
    OWN,
    ClosureProgram,
    DatasetDescription,
    Effect,
    FailedChecks,
    Job,
    Lookup,
    Operation,
    OtherShapes,
    Outcome,
    Request,
    describe_arrays,
)
from unisono._src.values import exported

# Larger changes are sent at once, so that servers work while the worker computes.
_MAX_BYTES = 1 << 22


class WorkerInput(Protocol):
    """A resource of a worker that closures take elements from."""

    def describe(self) -> DatasetDescription:
        """Returns what the coordinator must know of it."""

    def pull(self) -> object:
        """Returns the next element."""

    def put_back(self, element: object) -> None:
        """Takes back an element that was not used."""


@final
class Outbox:
    """Collects the changes that closures which run in one go make, by server.

    They wait until the worker asks their server for something, or has run the last
    closure. They then travel in one message, in order, so that a closure sees what
    earlier ones have done.

    Args:
        servers: handles of all servers.
    """

    def __init__(self, servers: Sequence[Handle]) -> None:
        self._servers = servers
        # By server: the place of each closure among those that run, and its change.
        self._waiting: dict[int, list[tuple[int, Any]]] = {}
        self._sent: list[tuple[list[int], Future[Any]]] = []

    def push(
        self, place: int, server: int, operations: list[Operation], closure: int | None
    ) -> None:
        """Adds the changes that a closure makes on one server.

        Args:
            place: the place of the closure among those that run.
            server: the server.
            operations: the changes.
            closure: the number of the closure, see `ParameterServer.push`.
        """
        self._waiting.setdefault(server, []).append((place, (operations, closure)))
        size = sum(x.nbytes for o in operations for x in o.operands)
        if size > _MAX_BYTES:
            self._send(server, [])

    def pull(self, wanted: Mapping[int, Sequence[Request]]) -> dict[int, Any]:
        """Returns the requested values, after sending the changes that wait."""
        calls = {s: self._send(s, asked) for s, asked in wanted.items()}
        return {s: call.result()[1] for s, call in calls.items()}

    def _send(self, server: int, asked: Sequence[Request]) -> Future[Any]:
        waiting = self._waiting.pop(server, [])
        pushes = [push for _, push in waiting]
        made = self._servers[server].call("exchange", pushes, asked)
        if waiting:
            self._sent.append(([place for place, _ in waiting], made))
        return made

    def flush(self) -> dict[int, Exception]:
        """Sends all changes that wait, and returns when they are made.

        Returns:
            The errors of changes, by the place of the closure.
        """
        for server in list(self._waiting):
            self._send(server, [])
        failed: dict[int, Exception] = {}
        for places, call in self._sent:
            for place, error in zip(places, call.result()[0], strict=True):
                if error is not None:
                    # A closure may have changed several servers; its first error
                    # counts.
                    failed.setdefault(place, error)
        self._sent.clear()
        return failed


@final
class Worker:
    """Runs closures, one at a time.

    A carrier runs it in a thread or a process of its own and calls its methods.

    Args:
        index: the number of this worker, from 0.
        servers: handles of all servers, in order.
    """

    def __init__(self, index: int, servers: Sequence[Handle]) -> None:
        self._index = index
        self._servers = list(servers)
        self._programs: dict[str, ClosureProgram] = {}
        self._resources: dict[int, WorkerInput] = {}
        # While several closures run in one go: what they send, and which one runs.
        self._outbox: Outbox | None = None
        self._place = 0

    def ping(self) -> int:
        """Returns the number of this worker, which shows that it answers."""
        return self._index

    def connect(self, servers: Sequence[Handle]) -> None:
        """Takes new handles of all servers, after one was replaced."""
        self._servers = list(servers)

    def add_program(self, program: ClosureProgram) -> None:
        """Takes the program of closures, which `run` then names by its key."""
        # A carrier may turn named tuples into plain ones. The worker's own keys are
        # filled in once, not at every run.
        given = ClosureProgram(*program)
        reads = tuple((s, self._own_key(k), p) for s, k, p in given.reads)
        effects = tuple(Effect(s, self._own(o), i) for s, o, i in given.effects)
        self._programs[given.key] = given._replace(reads=reads, effects=effects)

    def _own(self, operation: Operation) -> Operation:
        """Returns an operation with the worker's own keys."""
        found = Operation(*operation)
        return found._replace(
            keys=tuple(map(self._own_key, found.keys)),
            reads=tuple(map(self._own_key, found.reads)),
        )

    def _own_key(self, key: str) -> str:
        """Returns a key, with the number of this worker if it is for each worker."""
        return f"{key}{self._index}" if key.endswith(OWN) else key

    def build(
        self, resource: int, make: Callable[[], WorkerInput]
    ) -> DatasetDescription:
        """Makes a resource that closures of this worker use.

        Args:
            resource: the number by which programs name it.
            make: makes it: an object with `pull` and `put_back`, as `HostIterator`.

        Returns:
            The description that the resource gives of itself with `describe()`.
        """
        # The dataset function may ask for the number of the worker that runs it.
        with ambient.push_servers(worker=self._index):
            made = make()
        self._resources[resource] = made
        return made.describe()

    def forget(self, resources: Sequence[int]) -> None:
        """Lets go of resources that no closure can use any more."""
        for number in resources:
            self._resources.pop(number, None)

    def ask(self, resource: int, method: str, *args: object) -> Any:
        """Calls a method of a resource, and returns its result."""
        return getattr(self._resources[resource], method)(*args)

    def run(
        self,
        key: str,
        arguments: Sequence[np.ndarray],
        feeds: Sequence[int] = (),
        closure: int | None = None,
    ) -> list[np.ndarray] | OtherShapes | FailedChecks:
        """Runs a closure.

        Args:
            key: the key of its program.
            arguments: the arrays of its arguments.
            feeds: the resource of each element that it takes from a dataset, in order;
                -1 stands for the number of this worker.
            closure: its number, if its changes must be made only once.

        Returns:
            The arrays of its result. `OtherShapes` if the program does not fit the
            elements of this worker's datasets, `FailedChecks` if a check has failed;
            nothing has changed then.
        """
        program = self._programs[key]
        taken: list[tuple[WorkerInput, object]] = []
        try:
            arrays = self._take(program, feeds, taken)
            if isinstance(arrays, OtherShapes):
                self._put_back(taken)
                return arrays
            found = self._run(program, [*arguments, *arrays], closure)
            if isinstance(found, FailedChecks):
                self._put_back(taken)
            return found
        except BaseException:
            # An element that was not used is there for the next closure.
            self._put_back(taken)
            raise

    def run_many(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Runs closures one after the other, with few messages to the servers.

        Args:
            jobs: the closures.

        Returns:
            The outcomes of the first ones. A closure that fails, or whose program does
            not fit, ends the run: it has changed nothing, and `run` says why.
        """
        results: list[list[np.ndarray]] = []
        self._outbox = outbox = Outbox(self._servers)
        try:
            for self._place, job in enumerate(jobs):
                try:
                    found = self.run(*job)
                except errors.UnavailableError:
                    # A server is gone: the coordinator handles that for the whole
                    # batch.
                    raise
                except Exception:
                    # The coordinator runs this one alone, and it gets its error there.
                    break
                if isinstance(found, OtherShapes | FailedChecks):
                    break
                results.append(found)
            failed = outbox.flush()
        finally:
            self._outbox = None
        return [Outcome(x, failed.get(i)) for i, x in enumerate(results)]

    def _take(
        self,
        program: ClosureProgram,
        feeds: Sequence[int],
        taken: list[tuple[WorkerInput, object]],
    ) -> list[np.ndarray] | OtherShapes:
        """Returns the arrays of the elements that a closure takes from datasets."""
        found: list[list[np.ndarray]] = []
        for resource in feeds:
            if resource == INDEX:
                found.append([np.asarray(self._index, np.int32)])
                continue
            source, flat = self._resources[resource], list[Any]()
            try:
                element = source.pull()
            except StopIteration:
                raise host_inputs.EndOfSequenceError from None
            taken.append((source, element))
            # Only the arrays count: the program has the structure of the element.
            signature.flatten(element, flat, None)
            found.append([np.asarray(x) for x in flat])
        shapes = tuple(describe_arrays(arrays) for arrays in found)
        if shapes != program.shapes:
            return OtherShapes(shapes)
        return [x for arrays in found for x in arrays]

    @staticmethod
    def _put_back(taken: list[tuple[WorkerInput, object]]) -> None:
        # In reverse, because one iterator may have given several elements.
        while taken:
            source, element = taken.pop()
            source.put_back(element)

    def _run(
        self, program: ClosureProgram, inputs: list[np.ndarray], closure: int | None
    ) -> list[np.ndarray] | FailedChecks:
        read = self._pull([(s, Request(k, None, p)) for s, k, p in program.reads])
        inputs = [*read, *inputs]
        out: Sequence[Any] = ()
        for stage in program.stages:
            out = exported.load(stage.program)(*inputs)
            if stage.lookups:
                inputs += self._look_up(stage.lookups, [np.asarray(x) for x in out])
        # An error of the program itself must come before any change is sent.
        arrays = [np.asarray(x) for x in jax.block_until_ready(out)]
        checks = program.checks
        if checks and any(int(arrays[place]) == failed for place, failed in checks):
            return FailedChecks(arrays)
        count = program.operands
        self._push(program.effects, arrays[:count], closure)
        return arrays[count:]

    def _look_up(
        self, lookups: Sequence[Lookup], places: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Returns rows of variables; each row travels once."""
        packed = [messages.UniqueRows(x) for x in places]
        asked = zip(lookups, packed, strict=True)
        found = self._pull([(x.server, Request(x.key, w.rows)) for x, w in asked])
        return [w.expand(x) for w, x in zip(packed, found, strict=True)]

    def _pull(self, wanted: Sequence[tuple[int, Request]]) -> list[np.ndarray]:
        """Returns the requested values, with one message for each server."""
        by_server: dict[int, list[int]] = {}
        for i, (server, _) in enumerate(wanted):
            by_server.setdefault(server, []).append(i)
        asked = {s: [wanted[i][1] for i in x] for s, x in by_server.items()}
        answers: dict[int, Any]
        if self._outbox is not None:
            answers = self._outbox.pull(asked)
        else:
            # All servers are asked before the first answer is waited for.
            calls = {s: self._servers[s].call("pull", x) for s, x in asked.items()}
            answers = {s: call.result() for s, call in calls.items()}
        found: dict[int, np.ndarray] = {}
        for server, places in by_server.items():
            found.update(zip(places, answers[server], strict=True))
        return [found[i] for i in range(len(wanted))]

    def _push(
        self, effects: Sequence[Effect], operands: list[np.ndarray], closure: int | None
    ) -> None:
        """Sends changes of variables to their servers, one message for each server."""
        by_server: dict[int, list[Operation]] = {}
        for server, operation, places in effects:
            made = operation._replace(operands=tuple(operands[i] for i in places))
            by_server.setdefault(server, []).append(messages.pack(made))
        if self._outbox is not None:
            for server, operations in by_server.items():
                self._outbox.push(self._place, server, operations, closure)
            return
        calls: list[Future[Any]] = [
            self._servers[s].call("push", operations, closure)
            for s, operations in by_server.items()
        ]
        for call in calls:
            call.result()
