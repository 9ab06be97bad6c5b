"""`DistributedDataset`: one value per replica and step, read from a dataset."""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import numpy as np

from unisono._src.execution import host_inputs
from unisono._src.foundation import ambient, errors, host_numbers
from unisono._src.foundation.process_bound import ProcessBound
from unisono._src.foundation.public_names import publish
from unisono._src.input.api import iterators
from unisono._src.input.description import descriptions
from unisono._src.input.distribution import (
    input_options,
    placement,
    sharding_rule,
    source_agreement,
    steps,
    worker_agreement,
)
from unisono._src.input.loaders import dispatch, torch
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    batching,
    compiled_maps,
    dataset_options,
    mapping,
    mixing,
    prefetch,
    selecting,
    shuffling,
)
from unisono._src.machines.topology import Topology
from unisono._src.state import frames
from unisono._src.workers import watchdog, worker_notes

_log = logging.getLogger("unisono")
_State = TypeVar("_State")
# Numbers the distributed datasets of a program. Workers run the same program, so a
# number means the same dataset on all of them; their notes to each other name it.
_NUMBERS = itertools.count()
# The niceness of the input thread on CPU devices. A step has threads on all cores
# there, and replicas wait for each other, so the thread must take only idle cores.
_NICE = 5


@final
@dataclasses.dataclass(frozen=True)
class Reading:
    """How this worker reads a distributed dataset.

    Attributes:
        open: returns the steps on their devices, read ahead where that pays.
        kind: the kind of position in a saved state.
        is_common: whether every worker reads everything and knows what others get.
        plans: the plans of what it reads: one, or one for each replica.
        whole: the plan of all that it reads, before it is cut for replicas.
        check_position: raises unless all workers continue at an element; called with
            its number.
        topology: the replicas.
    """

    open: Callable[[], prefetch.ReadAhead]
    kind: str
    is_common: bool
    plans: Sequence[nodes.Node]
    whole: nodes.Node
    check_position: Callable[[int], None]
    topology: Topology


def reading_of(dataset: DistributedDataset) -> Reading:
    """Returns how this worker reads a distributed dataset."""
    # Private, because programs see the class.
    return dataset._reading()  # noqa: SLF001


# From the source to the program, one cursor around the other: the worker's plan, steps
# (`steps.BatchSteps` and its like), agreement between workers (`AgreedSteps`), devices
# (`PlacedSteps`), and the thread (`ReadAhead`), which remembers positions. Everything
# up to `PlacedSteps` runs in that thread, if there is one.
class DistributedIterator(ProcessBound, iterators.PositionedIterator):
    """Iterates over a distributed dataset; each element has one value per replica.

    You can save its position, and resume from it on any number of replicas.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> dataset = unisono.data.Dataset.range(8).batch(4)
    >>> distributed = strategy.experimental_distribute_dataset(dataset)
    >>> iterator, other = iter(distributed), iter(distributed)
    >>> [x.tolist() for x in strategy.experimental_local_results(next(iterator))]
    [[0, 1], [2, 3]]
    >>> other.set_state(iterator.get_state())
    >>> [x.tolist() for x in strategy.experimental_local_results(next(other))]
    [[4, 5], [6, 7]]
    """

    _instead = "Save its get_state(), and give that to set_state of another iterator."

    def __init__(self, dataset: DistributedDataset) -> None:
        super().__init__()
        reading = reading_of(dataset)
        self._ahead = reading.open()
        # How far each of the last elements moved the position, and the same for those
        # that were put back: `put_back` must undo exactly that.
        self._pulled: collections.deque[int] = collections.deque(maxlen=prefetch.BACK)
        self._back: list[int] = []
        self._dataset = dataset
        self._kind = reading.kind
        self._is_common = reading.is_common
        self._check_position = reading.check_position

    @property
    def element_spec(self) -> Any:
        """Returns the spec of the values of a step."""
        return self._dataset.element_spec

    def __repr__(self) -> str:
        return f"<DistributedIterator of {self._dataset!r}>"

    def _repr_html_(self) -> str:
        return self._dataset._repr_html_()

    def pull(self) -> Any:
        """Takes the values of the next step and returns them."""
        if self._returned:
            self._pulled.append(self._back.pop())
            return self._returned.popleft()
        found = self._ahead.read(1)
        if not len(found):
            raise StopIteration
        self._pulled.append(found[0].units)
        return found[0].batch

    def put_back(self, element: object) -> None:
        """Puts back an element that `pull` returned and that was not used."""
        self._back.append(self._pulled.pop())
        self._returned.appendleft(element)

    def get_state(self) -> dict[str, Any]:
        """Returns the global position as plain data: dicts, lists, numbers and text.

        It counts the elements that were taken from this iterator, and does not depend
        on the number of replicas, so you can resume on a different number.
        """
        # What was put back counts as not taken.
        position = self._ahead.get_state(sum(self._back))
        return {
            "kind": self._kind,
            "version": iterators.VERSION,
            "position": position["trail"],
        }

    @property
    def _checkpoint_mark(self) -> Callable[[Any], Any] | None:
        """Returns the function that finds the part of a state that workers share.

        None if each worker has a position of its own. The whole state may differ even
        where the position is the same, by how far a thread has read ahead.
        """
        if not self._is_common:
            return None
        return lambda state: state["position"]["index"]

    def set_state(self, state: dict[str, Any]) -> None:
        """Resumes from a position of the same dataset, on any number of replicas.

        Raises:
            ValueError: the state is not a position, or belongs to another kind of
                dataset.
            WorkerMismatchError: workers that share the dataset set different positions.
        """
        iterators.check_state(state, self._kind)
        self._check_position(state["position"]["index"])
        try:
            self._ahead.set_state({"trail": state["position"]})
            self._returned.clear()
            self._back.clear()
        except (KeyError, TypeError, IndexError) as e:
            raise iterators.other_dataset_error(e) from e

    def close(self) -> None:
        """Releases threads, processes and files, and ends the iteration."""
        self._ahead.close()


class DistributedDataset(ProcessBound, abc.ABC):
    """A dataset with one value per replica and step, which a strategy creates.

    Iterate over it in Python or inside a `unisono.function`, or pass its iterators to
    one. It has no transformations of its own.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> dataset = unisono.data.Dataset.range(6).batch(4)
    >>> for x in strategy.experimental_distribute_dataset(dataset):
    ...     print([part.tolist() for part in strategy.experimental_local_results(x)])
    [[0, 1], [2, 3]]
    [[4], [5]]

    Attributes:
        _kind: the kind of position in a saved state.
        _by_data: whether every worker reads everything and knows what the others get.
        _drops: whether the steps end when some replica has no element.
        _comparisons: compares it with those of other workers; None if none shares it.
    """

    _instead = "Copy or pickle the dataset that it was made of, and distribute that."
    _title = "DistributedDataset"
    _kind: str
    _by_data = False
    _drops = False
    _comparisons: source_agreement.Comparisons | None = None

    def __init__(
        self,
        topology: Topology,
        options: input_options.InputOptions | None = None,
        owner: object = None,
        share: steps.Share | None = None,
    ) -> None:
        self._topology = topology
        self._owner = owner
        self._share = share or steps.share_of(topology)
        self._options = input_options.check(options)
        mode = self._options.experimental_replication_mode
        self._per_replica = mode is not input_options.InputReplicationMode.PER_WORKER

    def _use_plans(self, given: nodes.Node, own: Sequence[nodes.Node]) -> None:
        """Reads `own`, which are this worker's part of the plan that was `given`."""
        self._given, self._plans, self._node = given, own, own[0]
        self._topic = f"input {next(_NUMBERS)}"
        self._iterators = itertools.count()

    # What can be asked.

    @property
    @abc.abstractmethod
    def element_spec(self) -> Any:
        """Returns the `PerReplicaSpec` of each array; for one replica, its plain spec.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = unisono.data.Dataset.range(8).batch(4, drop_remainder=True)
        >>> strategy.experimental_distribute_dataset(dataset).element_spec
        PerReplicaSpec(TensorSpec(shape=(2,), dtype=int64, name=None),
                       TensorSpec(shape=(2,), dtype=int64, name=None))
        """

    def describe(self) -> descriptions.InputDescription:
        """Returns a table of what each worker reads, and how batches are split.

        It also says what happens to batches that cannot be split evenly. Print it to
        see the table.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = unisono.data.Dataset.range(8).batch(4)
        >>> distributed = strategy.experimental_distribute_dataset(dataset)
        >>> distributed.describe().rows[0].parts
        'rows [0:2], [2:4] of 4'
        """
        return self._describe(look=True)

    @abc.abstractmethod
    def _describe(self, look: bool) -> descriptions.InputDescription:
        """Does what `describe` does; reads an element only if `look` is True."""

    @abc.abstractmethod
    def _count(self) -> int:
        """Returns how many steps there are."""

    @abc.abstractmethod
    def _open(self) -> prefetch.ReadAhead:
        """Returns the steps on their devices, read ahead where that pays."""

    def _reading(self) -> Reading:
        """Returns how this worker reads it."""
        whole, check = self._node, _accept_position
        if self._comparisons is not None:
            whole = source_agreement.SharedPlan(whole, self._comparisons)
            check = self._comparisons.check_position
        kind, topology = self._kind, self._topology
        return Reading(
            self._open, kind, self._by_data, self._plans, whole, check, topology
        )

    def _exchange(self, topic: str) -> worker_notes.NoteExchange:
        """Returns the exchange of notes between workers about this dataset."""
        return worker_notes.NoteExchange(
            self._topology, f"{self._topic}, {topic}", watchdog.patience()
        )

    @property
    def cardinality(self) -> host_numbers.HostInt64:
        """Returns the number of elements of this worker's dataset, if it is known.

        Returns:
            The number, `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = unisono.data.Dataset.range(6).batch(4)
        >>> int(strategy.experimental_distribute_dataset(dataset).cardinality)
        2
        """
        return host_numbers.HostInt64(self._node.cardinality)

    def __len__(self) -> int:
        return nodes.known_length(self._count())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{self._title} over {self._share.replicas} replicas>"

    def _repr_html_(self) -> str:
        return self._describe(look=False)._repr_html_()

    # Iteration.

    def __iter__(self) -> DistributedIterator:
        frame = ambient.current()
        if (frame.state or frames.EAGER).is_compiled:
            # Tracing stops here, and the host runs the loop step by step.
            raise host_inputs.NeedsHost
        if frame.strategy is not None and frame.strategy is not self._owner:
            raise errors.mixed_strategies_error(frame.strategy, self._owner)
        return DistributedIterator(self)

    def reduce(
        self, initial_state: _State, reduce_func: Callable[[_State, Any], _State]
    ) -> _State:
        """Reduces the values of all steps to one value.

        Args:
            initial_state: the state before the first step.
            reduce_func: takes a state and the values of a step, and returns the next
                state.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = unisono.data.Dataset.range(6).batch(2)
        >>> distributed = strategy.experimental_distribute_dataset(dataset)
        >>> distributed.reduce(0, lambda steps, x: steps + 1)
        3
        """
        result = initial_state
        for element in self:
            result = reduce_func(result, element)
        return result

    @property
    def _steps_ahead(self) -> int:
        """Returns how many steps to read ahead.

        As in TensorFlow, the buffer size counts the steps on the devices, and as many
        wait on the host.
        """
        return 2 * self._options.experimental_per_replica_buffer_size

    @property
    def _drops_now(self) -> bool:
        """Whether steps that are opened now end when some replica has no element.

        As in TensorFlow they do not in a loop of a `function`, which the host runs.
        """
        return self._drops and ambient.current().host is None

    def _place(
        self, made: cursors.Cursor, node: nodes.Node, size: int
    ) -> prefetch.ReadAhead:
        """Returns the steps on their devices, read `size` ahead."""
        if self._share.workers > 1 and not self._by_data:
            notes = self._exchange(f"iterator {next(self._iterators)}")
            made = worker_agreement.AgreedSteps(
                made, node, self._share, notes, self._drops_now
            )
            # Workers agree about each step in the thread, while the last one computes.
            size = max(1, size)
        fetch = self._options.experimental_fetch_to_device
        placed = placement.PlacedSteps(made, self._topology, node.is_fresh, fetch)
        on_cpu = self._topology.devices[0].platform == "cpu"
        nice = _NICE if on_cpu else 0
        there = None if on_cpu or not fetch else placement.Accelerators(self._topology)
        return prefetch.ReadAhead(placed, size, "input pipeline", nice, there)


@final
class DistributedBatches(DistributedDataset):
    """The global batches of a dataset, cut into one part for each replica."""

    _kind = "batches"

    def __init__(
        self,
        dataset: object,
        topology: Topology,
        options: input_options.InputOptions | None = None,
        owner: object = None,
        share: steps.Share | None = None,
    ) -> None:
        if isinstance(dataset, DistributedDataset):
            raise AttributeError(
                "The dataset is distributed already; distribute a "
                "unisono.data.Dataset, or iterate over this one."
            )
        super().__init__(topology, options, owner, share)
        if self._per_replica:
            raise NotImplementedError(
                "InputReplicationMode.PER_REPLICA is only supported in "
                "`distribute_datasets_from_function`."
            )
        given = dispatch.to_node(dataset)
        wanted = dataset_options.options_of(given)
        policy = wanted.experimental_distribute.auto_shard_policy
        self._decision = sharding_rule.decide(given, policy, self._share.uneven)
        self._by_data = self._decision.kind == dataset_options.AutoShardPolicy.DATA
        sharding_rule.check_batched(given, self._share.replicas)
        is_off = self._decision.kind == dataset_options.AutoShardPolicy.OFF
        # With OFF each worker has a dataset of its own, and may split it by itself.
        torch.check_whole(given, self._share.workers if is_off else 1)
        # The order matters: the options are read from the plan as it was given, the
        # rule is decided on it, and only then the plan is cut for this worker and its
        # maps are sent to processes or compiled.
        own = sharding_rule.plan_for_worker(
            given, self._decision, self._share.workers, self._share.worker
        )
        self._use_plans(given, [compiled_maps.run_as_asked(own, wanted)])
        if self._share.workers > 1:
            self._agree()
        _log.info("%s", self.describe().line)

    def _agree(self) -> None:
        """Has workers that share the dataset compare it, and shuffle it alike.

        With OFF each one reads everything in an order of its own.
        """
        notes = self._exchange("plan")
        if self._decision.kind == dataset_options.AutoShardPolicy.OFF:
            source_agreement.tell_exempt("AutoShardPolicy.OFF", notes)
            return
        source_agreement.agree_on_plan(self._given, self._decision, notes)
        self._comparisons = source_agreement.Comparisons(
            self._node, self._decision, self._exchange
        )

    @property
    def element_spec(self) -> Any:
        """Returns a `PerReplicaSpec` of every array; the plain spec for one replica."""
        if self._share.is_single:
            return self._given.spec
        part = sharding_rule.divided_spec(
            self._given.spec, self._share.replicas, self._share.workers > 1
        )
        return sharding_rule.per_replica_spec(part, self._share.local)

    def _count(self) -> int:
        """Returns how many steps there are.

        Unknown if workers read parts of their own: a step may take several elements.
        """
        shared = self._share.workers > 1 and not self._by_data
        return nodes.UNKNOWN if shared else self._node.cardinality

    def _describe(self, look: bool) -> descriptions.InputDescription:
        return descriptions.describe_batches(self._given, self._decision, self._share)

    def _open(self) -> prefetch.ReadAhead:
        node, wanted = self._node, self._steps_ahead
        while isinstance(node, (prefetch.Prefetch, dataset_options.WithOptions)):
            # One thread reads for both: the `prefetch` at the end of the plan and this.
            if isinstance(node, prefetch.Prefetch):
                wanted = max(wanted, node.size)
            node = node.parent
        size = 0 if _is_cheap(node) else wanted
        return self._place(self._steps(node), node, size)

    def _steps(self, node: nodes.Node) -> cursors.Cursor:
        """Returns the steps of a plan, on the host."""
        # A batch that is placed at once may be lent, since placing copies it. Workers
        # that must agree first hold batches back, and need copies.
        is_placed = self._share.workers == 1 or self._by_data

        def make() -> cursors.Cursor:
            return mapping.lending_cursor(node) if is_placed else node.cursor()

        source = make() if self._comparisons is None else self._comparisons.open(make)
        if self._share.is_single:
            return steps.SingleReplicaSteps(source)
        return steps.BatchSteps(source, self._share, self._decision.size, self._by_data)


@final
class DistributedDatasetsFromFunction(DistributedDataset):
    """The elements of the datasets that a function made, one per replica and step."""

    _title = "DistributedDatasetsFromFunction"
    _kind = "elements"

    def __init__(
        self,
        dataset_fn: Callable[[input_options.InputContext], Any],
        topology: Topology,
        options: input_options.InputOptions | None = None,
        owner: object = None,
        share: steps.Share | None = None,
    ) -> None:
        super().__init__(topology, options, owner, share)
        input_options.check_place_of_functions(self._options)
        if self._per_replica and self._share.workers > 1:
            raise NotImplementedError(
                "InputReplicationMode.PER_REPLICA is only supported in "
                "`distribute_datasets_from_function` of tf.distribute.MirroredStrategy."
            )
        made = [_call_dataset_fn(dataset_fn, c) for c in self._contexts()]
        self._use_plans(made[0], made)
        if self._share.workers > 1:
            source_agreement.tell_exempt(
                "distribute_datasets_from_function", self._exchange("plan")
            )
        if self._per_replica:
            self._kind = "elements per replica"
        _log.info("%s", self._describe(look=False).line)

    def with_whole_steps(self) -> DistributedDatasetsFromFunction:
        """Ends the steps before the first for which some replica has no element."""
        self._drops = True
        _log.info("%s", self._describe(look=False).line)
        return self

    def _contexts(self) -> list[input_options.InputContext]:
        """Returns the context of each call of the function."""
        share = self._share
        make = input_options.InputContext
        if self._per_replica:
            return [
                make(share.replicas, i, share.replicas) for i in range(share.replicas)
            ]
        return [make(share.workers, share.worker, share.replicas)]

    @property
    def element_spec(self) -> Any:
        """Returns a `PerReplicaSpec` of every array; the plain spec for one replica."""
        if self._share.is_single:
            return self._given.spec
        spec = self._given.spec
        if self._share.workers > 1:
            spec = sharding_rule.divided_spec(spec, 1, dynamic=not self._drops)
        return sharding_rule.per_replica_spec(spec, self._share.local)

    def _count(self) -> int:
        """Returns `UNKNOWN`: each replica takes an element of its own."""
        return nodes.UNKNOWN

    def _describe(self, look: bool) -> descriptions.InputDescription:
        given, share = self._plans, self._share
        return descriptions.describe_elements(given, share, self._drops, look)

    def _open(self) -> prefetch.ReadAhead:
        missing = functools.partial(
            sharding_rule.empty_part, self._given, self._share.workers, self._drops_now
        )
        if self._per_replica:
            made: cursors.Cursor = steps.DatasetSteps(
                [n.cursor() for n in self._plans], missing
            )
        else:
            made = steps.ElementSteps(self._given.cursor(), self._share, missing)
        cheap = all(_is_cheap(n) for n in self._plans)
        return self._place(made, self._given, 0 if cheap else self._steps_ahead)


def _call_dataset_fn(
    dataset_fn: Any, context: input_options.InputContext
) -> nodes.Node:
    """Returns the plan that a `dataset_fn` makes for a worker or a replica.

    Raises:
        TypeError: it did not return a dataset or a loader.
    """
    made = input_options.call_dataset_fn(dataset_fn, context)
    if isinstance(made, DistributedDataset) or not (
        hasattr(made, "_node") or hasattr(made, "__iter__")
    ):
        raise TypeError(
            "dataset_fn must return a dataset or a loader that is not distributed, "
            f"received {type(made).__name__}."
        )
    node = dispatch.to_node(made)
    return compiled_maps.run_as_asked(node, dataset_options.options_of(node))


def _accept_position(index: int) -> None:
    """Accepts every position: no other worker shares the dataset."""


publish("unisono.distribute", DistributedDataset, DistributedIterator)


# A batch of at most this many bytes that is only a choice of rows is made when it is
# asked for: a thread would cost more than it saves.
_WORTH_A_THREAD = 1 << 20
# The stages that only choose rows.
_CHEAP = (
    arrays.Tensors,
    arrays.Slices,
    arrays.Range,
    selecting.Take,
    selecting.Skip,
    selecting.Shard,
    selecting.Repeat,
    shuffling.Shuffle,
    batching.Batch,
    mixing.Zip,
    mixing.Concatenate,
    prefetch.Prefetch,
    dataset_options.WithOptions,
    batching.HiddenBatchSize,
)


def _is_cheap(node: nodes.Node) -> bool:
    """Whether making a batch is only a choice of rows, and the batch is small."""
    if not all(isinstance(n, _CHEAP) for n in nodes.walk(node)):
        return False
    rows = sharding_rule.batch_size(node) or 1
    return rows * _row_bytes(node) <= _WORTH_A_THREAD


def _row_bytes(node: nodes.Node) -> int:
    """Returns how many bytes a row takes, as far as the plan tells its shape."""
    total = 0
    for s in elements.leaves(node.spec):
        known = [n for n in s.shape or () if n is not None]
        total += int(np.prod(known)) * s.dtype.itemsize
    return total
