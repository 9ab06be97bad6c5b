"""`ClusterCoordinator`: gives functions to the workers of a strategy."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, final, overload

import jax
import numpy as np
from jax.typing import ArrayLike

from unisono._src.execution import (
    concrete_function,
    function,
    host_inputs,
)
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.foundation import ambient, nest
from unisono._src.input.plan import elements
from unisono._src.servers import (
    closures,
    messages,
    parameter_server,
    per_worker,
    worker_data,
)
from unisono._src.servers.closure_queue import ClosureQueue
from unisono._src.servers.messages import ArrayShapes
from unisono._src.servers.parameter_server import ParameterServerStrategy
from unisono._src.servers.per_worker import RemoteValue, ScheduledValue
from unisono._src.servers.resources import ClosureInputError, Resources
from unisono._src.servers.worker_runner import ServerRecovery, WorkerRunner

_R = TypeVar("_R")
# Traces a call; see `closures.trace_call`.
_Trace = Callable[[], tuple[TracedFunction, list[Any], list[Any], list[list[Any]]]]


@final
class _OnePerStrategy(type):
    """Makes a call of `ClusterCoordinator` return the one of the strategy."""

    def __call__(cls, strategy: ParameterServerStrategy) -> ClusterCoordinator:
        if not isinstance(strategy, ParameterServerStrategy):
            raise ValueError(
                "Only `tf.distribute.experimental.ParameterServerStrategy` is "
                "supported to work with `ClusterCoordinator` currently, received "
                f"{strategy!r}."
            )
        cluster = parameter_server.cluster_of(strategy)
        if cluster.coordinator is None:
            cluster.coordinator = super().__call__(strategy)
        found: ClusterCoordinator = cluster.coordinator
        return found


# The program's thread traces a function and puts a closure into the queue. For each
# worker a thread takes closures from it, calls the worker, waits, and gives the result
# to the `RemoteValue`. Servers are called by all these threads.
class ClusterCoordinator(metaclass=_OnePerStrategy):
    """Schedules functions on the workers of a `ParameterServerStrategy`.

    Each strategy has one coordinator: calling the class again returns the same object.

    Args:
        strategy: the strategy.

    Raises:
        ValueError: `strategy` is not a `ParameterServerStrategy`.

    >>> import unisono
    >>> cluster = {"worker": ["a:1", "b:1"], "ps": ["c:1"]}
    >>> resolver = unisono.distribute.cluster_resolver.SimpleClusterResolver(
    ...     unisono.train.ClusterSpec(cluster)
    ... )
    >>> strategy = unisono.distribute.ParameterServerStrategy(
    ...     resolver, carrier="threads"
    ... )
    >>> coordinator = ClusterCoordinator(strategy)
    >>> with strategy.scope():
    ...     total = unisono.Variable(0)
    >>> @unisono.function
    ... def add(x):
    ...     total.assign_add(x)
    >>> for _ in range(10):
    ...     result = coordinator.schedule(add, args=(2,))
    >>> coordinator.join()
    >>> int(total.numpy()), coordinator.done()
    (20, True)
    >>> strategy.shutdown()
    """

    def __init__(self, strategy: ParameterServerStrategy) -> None:
        # Weak, because the strategy has its coordinator.
        self._strategy = weakref.ref(strategy)
        cluster = parameter_server.cluster_of(strategy)
        carrier, servers = cluster.carrier, cluster.servers
        self._is_synchronous = carrier.is_synchronous
        self._queue: ClosureQueue[closures.Closure] = ClosureQueue()
        self._resources = Resources(carrier, cluster.workers)
        recovery = ServerRecovery(servers, cluster.restore_from)
        parts = self._queue, self._resources, recovery
        self._runners = cluster.runners = [
            WorkerRunner(i, carrier, servers, *parts) for i in range(cluster.workers)
        ]
        # By the id of the trace. The trace is kept too, so that no other gets its id.
        self._exported: dict[int, tuple[object, closures.ExportedFunction]] = {}
        self._numbers = itertools.count()
        self._turns = itertools.cycle(self._runners)
        # Tracing changes state of functions and of JAX: one thread at a time.
        self._tracing = threading.RLock()
        self._threads: list[threading.Thread] = []
        if not self._is_synchronous:
            self._threads = [_start(runner) for runner in self._runners]
        # A function, not a method, which would keep this object alive.
        self._close = weakref.finalize(
            self, _close, self._queue, self._runners, self._threads
        )
        cluster.cancel_waiting = functools.partial(
            _cancel_waiting, self._queue, self._runners
        )
        cluster.close = self._close

    @property
    def strategy(self) -> ParameterServerStrategy:
        """The strategy whose workers run the functions."""
        found = self._strategy()
        assert found is not None
        return found

    def schedule(
        self,
        fn: Callable[..., _R],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        exactly_once: bool = False,
    ) -> RemoteValue[_R]:
        """Lets a worker run a function, and returns immediately.

        The function is traced here, in the scope of the strategy, and is sent as a
        compiled program. It runs at least once: if its worker is lost, another one runs
        it.

        Args:
            fn: a `unisono.function`.
            args: its positional arguments. A worker gets its own component of a
                per-worker value.
            kwargs: its keyword arguments.
            exactly_once: whether its changes to variables are applied only once, even
                if it runs several times.

        Returns:
            A `RemoteValue` for the result, which a worker computes later.

        Raises:
            TypeError: `fn` is a Python function, or `args` is not a tuple or list.
            ValueError: `fn` cannot be called, an argument is a `RemoteValue`, or the
                function cannot run in another process.
            Exception: the first error of a function that was scheduled earlier. `fn` is
                then cancelled.
        """
        _check_function(fn)
        trace = functools.partial(
            closures.trace_call, fn, *_check_arguments(args, kwargs)
        )
        remote: ScheduledValue[_R] = ScheduledValue()
        try:
            closure = self._make_closure(trace, remote, exactly_once)
        except (ClosureInputError, host_inputs.EndOfSequenceError) as error:
            # Errors of a worker's dataset come from the next call, as in TensorFlow.
            remote.fail(error)
            self._queue.fail(error)
            return remote
        self._queue.put(closure)
        # A closure whose worker is lost is put back, and the next worker runs it.
        while self._is_synchronous and self._queue.has_waiting():
            next(self._turns).run(self._queue.get())
        return remote

    def _make_closure(
        self, trace: _Trace, remote: ScheduledValue[Any], is_once: bool
    ) -> closures.Closure:
        def retrace(shapes: tuple[ArrayShapes, ...]) -> closures.ExportedFunction:
            return self._export(trace, shapes)[0]

        # The plan keeps the iterators: workers let theirs go when these are garbage.
        exported, leaves, plan = self._export(trace, None)
        number = next(self._numbers) if is_once else None
        arrays = [np.asarray(x) for x in leaves]
        receiver = weakref.ref(remote)
        return closures.Closure(exported, arrays, plan, number, retrace, receiver)

    def _export(
        self, trace: _Trace, shapes: tuple[ArrayShapes, ...] | None
    ) -> tuple[
        closures.ExportedFunction, Sequence[ArrayLike], Sequence[closures.NumberedInput]
    ]:
        """Traces a call.

        Args:
            trace: traces it.
            shapes: the shapes of the elements that it takes; None for those of the
                first worker.

        Returns:
            What travels; the arrays of the arguments; and the iterators.
        """
        # The number of the worker is not known yet: it is an input of the program.
        mark = ambient.push_servers(worker=messages.INDEX)
        with self._tracing, self.strategy.scope(), mark:
            if shapes is not None:
                # The first trace only tells which iterators the function uses.
                for source, wanted in zip(trace()[2], shapes, strict=True):
                    if isinstance(source, per_worker.PerWorkerIterator):
                        source.shapes = wanted
            found, leaves, iterators, taken = trace()
            # What the functions of closures take elements from has a number.
            plan = cast("list[closures.NumberedInput]", iterators)
            known = self._exported.get(id(found))
            if known is not None:
                return known[1], leaves, plan
            described = [messages.describe_arrays(arrays) for arrays in taken]
            made = closures.export_function(found, described)
            self._exported[id(found)] = (found, made)
            return made, leaves, plan

    def join(self) -> None:
        """Waits until all scheduled functions have ended.

        Raises:
            Exception: the first error of one of them. Functions that have not run are
                cancelled, and you can use the coordinator again.
        """
        self._queue.wait()

    def done(self) -> bool:
        """Returns whether all scheduled functions have ended; raises as `join` does."""
        return self._queue.is_done()

    @overload
    def fetch(self, val: RemoteValue[_R]) -> _R: ...

    @overload
    def fetch(self, val: list[Any]) -> list[Any]: ...

    @overload
    def fetch(self, val: object) -> Any: ...

    def fetch(self, val: object) -> Any:
        """Waits for each `RemoteValue` in a structure, and returns the results.

        Args:
            val: a `RemoteValue` or a nested structure; other values are not changed.

        Raises:
            Exception: as `RemoteValue.fetch` does.
        """
        return nest.map_structure(
            lambda x: x.fetch() if isinstance(x, RemoteValue) else x, val
        )

    def create_per_worker_dataset(
        self, dataset_fn: object
    ) -> per_worker.PerWorkerDataset:
        """Returns a dataset that each worker creates for itself.

        Args:
            dataset_fn: a function without arguments that returns a dataset; or a
                dataset, which the strategy may have distributed.

        Raises:
            ValueError: `dataset_fn` is something else.
        """
        kinds = (worker_data.WorkerBatches, worker_data.WorkerFunction)
        is_dataset = isinstance(dataset_fn, kinds) or elements.is_dataset(dataset_fn)
        if not (is_dataset or callable(dataset_fn)):
            raise ValueError(
                f"Unexpected dataset type! Received {dataset_fn!r}. Give a dataset, or "
                "a function without arguments that returns one."
            )
        return per_worker.PerWorkerDataset(
            dataset_fn, self._resources, len(self._runners)
        )


def _start(runner: WorkerRunner) -> threading.Thread:
    """Starts the thread that gives closures to a worker."""
    made = threading.Thread(
        target=runner.serve, name=f"unisono coordinator {runner.index}", daemon=True
    )
    made.start()
    return made


def _cancel_waiting(
    queue: ClosureQueue[closures.Closure], runners: Sequence[WorkerRunner]
) -> None:
    """Cancels closures that wait; no other one starts."""
    for runner in runners:
        runner.is_stopped.set()
    queue.close()


def _close(
    queue: ClosureQueue[closures.Closure],
    runners: Sequence[WorkerRunner],
    threads: list[threading.Thread],
) -> None:
    """Ends the threads of a coordinator that is gone."""
    _cancel_waiting(queue, runners)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()


def _check_function(fn: object) -> None:
    """Raises unless `fn` can be scheduled."""
    if not callable(fn):
        raise ValueError(f"Only callable functions can be scheduled, received {fn!r}.")
    if not isinstance(fn, (*function.COMPILED, concrete_function.ConcreteFunction)):
        raise TypeError(
            "`tf.distribute.coordinator.ClusterCoordinator.schedule` only accepts a "
            f"`tf.function` or a concrete function. Received {fn!r}; write "
            "unisono.function(fn)."
        )


def _check_arguments(
    args: object, kwargs: object
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Returns the arguments of a scheduled function.

    Raises:
        TypeError: they are no tuple or list, or no dictionary.
        ValueError: one of them is a result that is not there yet.
    """
    args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        raise TypeError(
            "schedule takes the function's arguments as args=(x, …), a tuple or list, "
            f"and kwargs={{'name': x, …}}, a dictionary; received args={args!r} and "
            f"kwargs={kwargs!r}."
        )
    for x in nest.leaves((args, kwargs)):
        if isinstance(x, RemoteValue):
            raise ValueError(
                "`tf.distribute.experimental.coordinator.RemoteValue` should not be "
                "used as an argument of a scheduled function; pass its fetch()."
            )
    return tuple(args), dict(kwargs)


def experimental_get_current_worker_index() -> jax.Array | int:
    """Returns the index of the worker that runs the function.

    Call it in a scheduled function, where it is known only when the function runs, or
    in the function that creates a per-worker dataset.

    Raises:
        RuntimeError: it is called elsewhere.
    """
    frame = ambient.current()
    if frame.servers.worker == messages.INDEX:
        found: jax.Array = host_inputs.take(frame.state, worker_data.NUMBER)
        return found
    if frame.servers.worker is not None:
        return frame.servers.worker
    raise RuntimeError(
        "Cannot retrieve the worker index. `get_worker_index` should only be called "
        "from within a function that is given to ClusterCoordinator.schedule, or to "
        "create_per_worker_dataset."
    )


@contextlib.contextmanager
def cache_variable_reads() -> Iterator[None]:
    """Reads each variable on a parameter server only once in a ``with`` block.

    The first value that is read is used until the block ends, even if the variable is
    assigned in the meantime. This includes functions that are traced in the block: put
    the block inside a scheduled function, or around the call of `schedule`.

    Raises:
        ValueError: the block is inside another such block.

    >>> import unisono
    >>> cluster = unisono.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
    >>> strategy = unisono.distribute.ParameterServerStrategy(
    ...     unisono.distribute.cluster_resolver.SimpleClusterResolver(cluster),
    ...     carrier="threads",
    ... )
    >>> with strategy.scope():
    ...     v = unisono.Variable(1.0)
    >>> with cache_variable_reads():
    ...     first = float(v.value())
    ...     v.assign(5.0, read_value=False)
    ...     first, float(v.value())
    (1.0, 1.0)
    >>> float(v.value())
    5.0
    >>> strategy.shutdown()
    """
    if ambient.current().servers.reads is not None:
        raise ValueError("cache_variable_reads scope cannot be nested")
    with ambient.push_servers(reads={}):
        yield
