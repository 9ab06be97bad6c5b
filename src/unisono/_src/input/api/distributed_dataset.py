"""`DistributedDataset`: what each replica gets of a dataset, step by step."""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import logging
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.execution import host_inputs, specs
from unisono._src.foundation import ambient, errors
from unisono._src.foundation.public_names import publish
from unisono._src.input.api import iterators
from unisono._src.input.description import batch_table, function_table, report
from unisono._src.input.distribution import (
    placement,
    sharding_rule,
    steps,
    worker_agreement,
)
from unisono._src.input.loaders import dispatch, hugging_face
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.sources import arrays
from unisono._src.input.stages import (
    batching,
    carried_options,
    dataset_options,
    map_processes,
    mapping,
    mixing,
    prefetch,
    selecting,
    shuffling,
)
from unisono._src.machines.topology import Topology
from unisono._src.state import frames
from unisono._src.workers import worker_notes

_LOG = logging.getLogger("unisono")
# Tells apart the datasets of a program; the same on all of its workers.
_NUMBERS = itertools.count()
# Batches that are at most so large, and cost nothing to make, are made when they are
# asked for: a thread would cost more than it saves.
_WORTH_A_THREAD = 1 << 20
# On CPU devices a step has threads on all cores, and replicas wait for each other: the
# next batch is made where a step leaves a core.
_NICE = 5
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
    carried_options.WithOptions,
    batching.Opaque,
)


class DistributedIterator(iterators.PositionedIterator):
    """Iterates over a distributed dataset."""

    def __init__(self, dataset: DistributedDataset) -> None:
        super().__init__()
        self._ahead = dataset._open()
        self._pulled: collections.deque[int] = collections.deque(maxlen=prefetch.BACK)
        self._back: list[int] = []
        self._dataset = dataset
        self._kind = dataset._kind

    @property
    def element_spec(self) -> Any:
        """The spec of what a step gives."""
        return self._dataset.element_spec

    def pull(self) -> Any:
        """The values of the next step, taken now."""
        if self._returned:
            self._pulled.append(self._back.pop())
            return self._returned.popleft()
        found = self._ahead.read(1)
        if not len(found):
            raise StopIteration
        self._pulled.append(found[0].units)
        return found[0].batch

    def put_back(self, element: Any) -> None:
        """Undo a `pull` whose element was not used."""
        self._back.append(self._pulled.pop())
        self._returned.appendleft(element)

    def get_state(self) -> dict[str, Any]:
        """The global position, as plain data: dicts, lists, numbers and text.

        It counts what was taken from this iterator, and does not depend on the number
        of replicas: any other number may continue from it.
        """
        position = self._ahead.get_state(sum(self._back))
        return {
            "kind": self._kind,
            "version": iterators.VERSION,
            "position": position["trail"],
        }

    @property
    def _checkpoint_mark(self) -> Callable[[Any], Any] | None:
        """What of a state must be the same on all workers; None if each has its own.

        One position can be described in several ways, by how far a thread has read.
        """
        if not self._dataset._by_data:
            return None
        return lambda state: state["position"]["index"]

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a position of the same dataset on any number of replicas.

        Raises:
            ValueError: the state is none, or is of another kind of dataset.
        """
        iterators.check_state(state, self._kind)
        try:
            self._ahead.set_state({"trail": state["position"]})
            self._returned.clear()
            self._back.clear()
        except (KeyError, TypeError, IndexError) as e:
            raise ValueError(
                "The position was saved from a dataset that was made in another way: "
                f"{type(e).__name__}: {e}. Make the dataset as the program did that "
                "saved it."
            ) from e

    def close(self) -> None:
        """Give back threads, processes and files; there are no more elements."""
        self._ahead.close()


class DistributedDataset(abc.ABC):
    """Gives one value per replica and step; made by a strategy.

    It can be iterated in Python, looped over inside a `unisono.function`, and its
    iterators can be given to one. It has no transformations of its own.

    Attributes:
        _kind: names the kind of position in a saved state.
        _by_data: whether every worker reads everything and knows what the others get.
        _drops: whether the steps end when some replica has no element.
    """

    _title = "DistributedDataset"
    _kind: str
    _by_data = False
    _drops = False

    def __init__(
        self,
        topology: Topology,
        options: dataset_options.InputOptions | None = None,
        owner: Any = None,
        share: steps.Share | None = None,
    ) -> None:
        self._topology = topology
        self._owner = owner
        self._share = share or share_of(topology)
        self._options = check_options(options)
        mode = self._options.experimental_replication_mode
        self._per_replica = mode is not _PER_WORKER

    def _take(self, given: nodes.Node, own: nodes.Node) -> None:
        """Read `own`, which is this worker's part of what was `given`."""
        self._given, self._node = given, own
        self._topic = f"input {next(_NUMBERS)}"
        self._iterators = itertools.count()

    # Looking at it.

    @property
    @abc.abstractmethod
    def element_spec(self) -> Any:
        """`PerReplicaSpec` of every array; the plain spec for one replica."""

    @abc.abstractmethod
    def describe(self) -> report.InputDescription:
        """What is read by whom, how it is split, and what happens to the remainder."""

    @abc.abstractmethod
    def _count(self) -> int:
        """How many steps there are."""

    @abc.abstractmethod
    def _open(self) -> prefetch.Ahead:
        """The steps, placed; read ahead where that pays."""

    @property
    def cardinality(self) -> np.int64:
        """How many elements this worker's dataset has, or one of the two constants."""
        return np.int64(self._node.cardinality)

    def __len__(self) -> int:
        return nodes.known_length(self._count())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<{self._title} over {self._share.replicas} replicas>"

    # Iterating.

    def __iter__(self) -> DistributedIterator:
        frame = ambient.current()
        if (frame.state or frames.EAGER).is_compiled:
            raise host_inputs.NeedsHost
        if frame.strategy is not None and frame.strategy is not self._owner:
            raise errors.mixing(frame.strategy, self._owner)
        return DistributedIterator(self)

    def reduce(self, initial_state: Any, reduce_func: Callable[..., Any]) -> Any:
        """Fold a function over the steps."""
        result = initial_state
        for element in self:
            result = reduce_func(result, element)
        return result

    @property
    def _steps_ahead(self) -> int:
        """As in TensorFlow: so many on the devices, and as many that wait for them."""
        return 2 * self._options.experimental_per_replica_buffer_size

    def _placed(
        self, made: cursors.Cursor, node: nodes.Node, size: int
    ) -> prefetch.Ahead:
        """Steps on their devices, read `size` ahead."""
        if self._share.workers > 1 and not self._by_data:
            topic = f"{self._topic}, iterator {next(self._iterators)}"
            notes = worker_notes.Board(self._topology, topic)
            made = worker_agreement.Together(
                made, node, self._share, notes, self._drops
            )
            size = max(1, size)
        fetch = self._options.experimental_fetch_to_device
        placed = placement.Placed(made, self._topology, node.is_fresh, fetch)
        on_cpu = self._topology.devices[0].platform == "cpu"
        nice = _NICE if on_cpu else 0
        return prefetch.Ahead(placed, size, "input pipeline", nice)


@final
class DistributedBatches(DistributedDataset):
    """Global batches of a dataset, cut into a part for each replica."""

    _kind = "batches"

    def __init__(
        self,
        dataset: Any,
        topology: Topology,
        options: dataset_options.InputOptions | None = None,
        owner: Any = None,
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
        wanted = carried_options.options_of(given)
        policy = wanted.experimental_distribute.auto_shard_policy
        self._decision = sharding_rule.decide(given, policy)
        self._by_data = self._decision.kind == dataset_options.AutoShardPolicy.DATA
        _check_batched(given, self._share)
        own = sharding_rule.for_worker(
            given, self._decision, self._share.workers, self._share.worker
        )
        self._take(given, map_processes.prepared(own, wanted.worker_processes))
        # Else each worker has an order of its own, and reads everything in it.
        is_dealt = self._decision.kind != dataset_options.AutoShardPolicy.OFF
        if self._share.workers > 1 and is_dealt:
            notes = worker_notes.Board(topology, f"{self._topic}, seeds")
            worker_agreement.share_seeds(self._node, notes)
        _LOG.info("%s", self.describe().line)

    @property
    def element_spec(self) -> Any:
        """`PerReplicaSpec` of every array; the plain spec for one replica."""
        if self._share.is_single:
            return self._given.spec
        part = sharding_rule.divided_spec(
            self._given.spec, self._share.replicas, self._share.workers > 1
        )
        return _per_replica(part, self._share.local)

    def _count(self) -> int:
        """How many steps there are; with shared batches each is several of them."""
        shared = self._share.workers > 1 and not self._by_data
        return nodes.UNKNOWN if shared else self._node.cardinality

    def describe(self) -> report.InputDescription:
        """What is read by whom, how it is split, and what happens to the remainder."""
        return batch_table.describe_batches(self._given, self._decision, self._share)

    def _open(self) -> prefetch.Ahead:
        """The steps, placed; read ahead where that pays."""
        node, wanted = self._node, self._steps_ahead
        while isinstance(node, (prefetch.Prefetch, carried_options.WithOptions)):
            # One thread for both.
            if isinstance(node, prefetch.Prefetch):
                wanted = max(wanted, node.size)
            node = node.parent
        return self._placed(self._steps(node), node, 0 if is_cheap(node) else wanted)

    def _steps(self, node: nodes.Node) -> cursors.Cursor:
        # Steps are copied as they are placed, but workers that agree wait with some.
        is_placed = self._share.workers == 1 or self._by_data
        source = mapping.lent(node) if is_placed else node.cursor()
        if self._share.is_single:
            return steps.Whole(source)
        return steps.Cut(source, self._share, self._decision.size, self._by_data)


_PER_WORKER = dataset_options.InputReplicationMode.PER_WORKER


@final
class DistributedDatasetsFromFunction(DistributedDataset):
    """Elements of the datasets that a function made, one per replica and step."""

    _title = "DistributedDatasetsFromFunction"
    _kind = "elements"

    def __init__(
        self,
        dataset_fn: Callable[[dataset_options.InputContext], Any],
        topology: Topology,
        options: dataset_options.InputOptions | None = None,
        owner: Any = None,
        share: steps.Share | None = None,
    ) -> None:
        super().__init__(topology, options, owner, share)
        if self._per_replica and self._share.workers > 1:
            raise NotImplementedError(
                "InputReplicationMode.PER_REPLICA is only supported in "
                "`distribute_datasets_from_function` of tf.distribute.MirroredStrategy."
            )
        self._nodes = [_made(dataset_fn, c) for c in self._contexts()]
        self._take(self._nodes[0], self._nodes[0])
        if self._per_replica:
            self._kind = "elements per replica"
        _LOG.info("%s", self._described(look=False).line)

    def _with_whole_steps(self) -> DistributedDatasetsFromFunction:
        """End before the first step for which some replica has no element."""
        self._drops = True
        _LOG.info("%s", self._described(look=False).line)
        return self

    def _contexts(self) -> list[dataset_options.InputContext]:
        share = self._share
        if self._per_replica:
            count = share.replicas
            return [dataset_options.InputContext(count, i, count) for i in range(count)]
        return [
            dataset_options.InputContext(share.workers, share.worker, share.replicas)
        ]

    @property
    def element_spec(self) -> Any:
        """`PerReplicaSpec` of every array; the plain spec for one replica."""
        if self._share.is_single:
            return self._given.spec
        spec = self._given.spec
        if self._share.workers > 1:
            spec = sharding_rule.divided_spec(spec, 1, dynamic=True)
        return _per_replica(spec, self._share.local)

    def _count(self) -> int:
        """Not that of the dataset: each replica takes an element of its own."""
        return nodes.UNKNOWN

    def describe(self) -> report.InputDescription:
        """What each replica takes, and what happens to the remainder."""
        return self._described(look=True)

    def _described(self, look: bool) -> report.InputDescription:
        given, share = self._nodes, self._share
        return function_table.describe_elements(given, share, self._drops, look)

    def _open(self) -> prefetch.Ahead:
        missing = functools.partial(
            sharding_rule.empty_part, self._given, self._share.workers, self._drops
        )
        if self._per_replica:
            made: cursors.Cursor = steps.Separate(
                [n.cursor() for n in self._nodes], missing
            )
        else:
            made = steps.Dealt(self._given.cursor(), self._share, missing)
        cheap = all(is_cheap(n) for n in self._nodes)
        return self._placed(made, self._given, 0 if cheap else self._steps_ahead)


def _made(dataset_fn: Any, context: dataset_options.InputContext) -> nodes.Node:
    made = dataset_options.made_by(dataset_fn, context)
    if isinstance(made, DistributedDataset) or not (
        hasattr(made, "_node") or hasattr(made, "__iter__")
    ):
        raise TypeError(
            "dataset_fn must return a dataset or a loader that is not distributed, "
            f"received {type(made).__name__}."
        )
    node = dispatch.to_node(made)
    processes = carried_options.options_of(node).worker_processes
    return map_processes.prepared(node, processes)


def share_of(topology: Topology) -> steps.Share:
    """The share of this worker.

    Raises:
        ValueError: the workers have different numbers of devices.
    """
    share = steps.Share(topology.replicas, topology.workers, topology.worker)
    if share.local * share.workers != share.replicas or share.local != topology.copies:
        raise ValueError(
            f"Datasets are distributed over workers with as many replicas each; there "
            f"are {topology.replicas} replicas on {topology.workers} workers, and "
            f"worker {topology.worker} has {topology.copies}."
        )
    return share


def _per_replica(spec: Any, count: int) -> Any:
    return elements.map_leaves(lambda s: specs.PerReplicaSpec(*[s] * count), spec)


def is_cheap(node: nodes.Node) -> bool:
    """Whether making a batch is only a choice of rows, and the batch is small."""
    if not all(isinstance(n, _CHEAP) for n in nodes.walk(node)):
        return False
    rows = sharding_rule.batch_size(node) or 1
    return rows * _row_bytes(node) <= _WORTH_A_THREAD


def _row_bytes(node: nodes.Node) -> int:
    total = 0
    for s in elements.leaves(node.spec):
        known = [n for n in s.shape or () if n is not None]
        total += int(np.prod(known)) * s.dtype.itemsize
    return total


def _check_batched(node: nodes.Node, share: steps.Share) -> None:
    """Raise if the plan says that elements are single examples."""
    if share.is_single:
        return
    if hugging_face.holds_examples(sharding_rule.before_selection(node)):
        raise IndexError(
            f"Cannot split the elements over {share.replicas} replicas: each row of a "
            "Hugging Face dataset is a single example. Batch it first: "
            "Dataset.from_loader(table).batch(size); if its rows are batches already, "
            "Dataset.from_loader(table).unbatch().batch(size)."
        )
    if not nodes.tells_spec(node):
        return
    for path, spec in elements.paths(node.spec):
        if spec.shape == ():
            raise IndexError(
                f"Cannot split the elements over {share.replicas} replicas: the "
                f"component {path or 'of an element'} is a single value and has no "
                "batch axis. Batch the dataset by the global batch size first: "
                "dataset.batch(size)."
            )


def check_options(options: Any) -> dataset_options.InputOptions:
    """The options, checked as TensorFlow does.

    Raises:
        TypeError: it is something else.
        ValueError: they contradict each other.
    """
    if options is None:
        return dataset_options.InputOptions()
    if not isinstance(options, dataset_options.InputOptions):
        raise TypeError(
            "options must be a unisono.distribute.InputOptions, received "
            f"{type(options).__name__}."
        )
    per_replica = options.experimental_replication_mode is not _PER_WORKER
    if options.experimental_place_dataset_on_device and not per_replica:
        raise ValueError(
            "When `experimental_place_dataset_on_device` is set for dataset placement, "
            "you must also specify `PER_REPLICA` for the replication mode"
        )
    if (
        options.experimental_fetch_to_device
        and options.experimental_place_dataset_on_device
    ):
        raise ValueError(
            "`experimental_place_dataset_on_device` can not be set to True when "
            "experimental_fetch_to_device is True and replication mode is set to "
            "`PER_REPLICA`"
        )
    if options.experimental_per_replica_buffer_size < 0:
        raise ValueError(
            "experimental_per_replica_buffer_size is a number of steps, or 0 for none, "
            f"received {options.experimental_per_replica_buffer_size}."
        )
    return options


publish("unisono.distribute", DistributedDataset, DistributedIterator)
