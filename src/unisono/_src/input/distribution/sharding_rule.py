"""Decides how a dataset is split, and which files each worker reads."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import final

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.loaders import data_sources, hugging_face
from unisono._src.input.plan import elements, nodes
from unisono._src.input.stages import (
    batching,
    caching,
    dataset_options,
    file_listing,
    filtering,
    grouping,
    mapping,
    mixing,
    selecting,
    shuffling,
)

_log = logging.getLogger("unisono")
Policy = dataset_options.AutoShardPolicy

_FILES = file_listing.FILES
# The nodes that make batches.
BATCHES = (batching.Batching, batching.Rebatch)
# The nodes that pass elements on unchanged: a batch before them is still a batch.
_SEES_THROUGH = (nodes.Selecting, filtering.Filter, caching.FileCache)
# The nodes behind which the files of their source can still be dealt to workers.
_FILES_SEEN_THROUGH = (
    *_SEES_THROUGH,
    mapping.Map,
    batching.Batching,
    batching.Rebatch,
    batching.Unbatch,
    grouping.Window,
    mixing.Interleave,
)


def batch_size(node: nodes.Node) -> int | None:
    """Returns the number of examples in a full batch; None if the plan does not tell.

    TensorFlow's rule: the first axis if it is fixed in every component, else the size
    of the last `batch`, unless a transformation such as `map` comes after it.
    """
    declared = declared_batch_size(node)
    if declared is not None or not _may_spec_tell_more(node):
        return declared
    return elements.common_rows(node.spec)


def _may_spec_tell_more(node: nodes.Node) -> bool:
    """Whether the spec can tell more; asking for it may call a user's function."""
    last = next((n for n in nodes.walk(node) if isinstance(n, BATCHES)), None)
    # A last `batch` that keeps its remainder has no fixed
    # first axis, so that its spec would tell nothing.
    return last is None or last.drop


def node_before_selection(node: nodes.Node) -> nodes.Node:
    """Returns the node before the selections at the end of a plan."""
    while isinstance(node, _SEES_THROUGH) and not isinstance(
        node, batching.HiddenBatchSize
    ):
        node = node.parents[0]
    return node


def declared_batch_size(node: nodes.Node) -> int | None:
    """Returns the size of the last `batch`, unless something may change it later."""
    node = node_before_selection(node)
    if isinstance(node, batching.Batching):
        return node.size
    if isinstance(node, (mixing.Zip, mixing.Concatenate)):
        sizes = {declared_batch_size(n) for n in node.inputs}
        return sizes.pop() if len(sizes) == 1 else None
    return None


def is_fixed(node: nodes.Node, look: bool) -> bool | None:
    """Whether the spec fixes every size; None if only an element could tell.

    Args:
        node: the plan.
        look: whether an element may be looked at, which can cost a call or a read.
    """
    if not look and not nodes.tells_spec(node):
        last = node_before_selection(node)
        varies = isinstance(last, batching.Batching) and not last.drop
        return False if varies else None
    leaves = elements.leaves(node.spec)
    return all(s.shape.is_fully_defined() for s in leaves)


def is_constant(node: nodes.Node) -> bool:
    """Whether the plan promises endless elements of one shape."""
    if node.cardinality != nodes.INFINITE or not nodes.tells_spec(node):
        return False
    last = node_before_selection(node)
    inner = node.spec
    if isinstance(last, batching.Batch) and last.parent.cardinality == nodes.INFINITE:
        # Every batch of an endless dataset is full.
        inner = last.parent.spec
    return all(s.shape.is_fully_defined() for s in elements.leaves(inner))


def file_nodes(node: nodes.Node) -> list[nodes.Node]:
    """Returns the nodes whose files are dealt to workers; [] if data must be dealt.

    These are sources of files. An `interleave` or `flat_map` whose function reads files
    counts as well: the elements that it is applied to are dealt.
    """
    if isinstance(node, _FILES):
        return [node]
    if isinstance(node, mixing.Interleave) and _reads_files(node):
        return [node]
    if isinstance(node, _FILES_SEEN_THROUGH):
        return file_nodes(node.parents[0])
    if isinstance(node, (mixing.Zip, mixing.Concatenate)):
        found = [file_nodes(n) for n in node.inputs]
        # If one input reads no files, dealing the files of the others would pair the
        # wrong elements, or repeat that input on every worker.
        return [n for part in found for n in part] if all(found) else []
    return []


def _reads_files(node: mixing.Interleave) -> bool:
    """Whether the datasets that a function makes read files."""
    return any(isinstance(n, _FILES) for n in nodes.walk(node.sample()))


@final
@dataclasses.dataclass(frozen=True)
class Decision:
    """How a dataset is split.

    Attributes:
        policy: the policy that the options asked for.
        kind: the policy that applies: FILE, DATA, OFF or HINT.
        size: examples in a full batch, if the parts have fixed sizes that are filled
            in order (rule B); None cuts chunks of equal size (rule A).
    """

    policy: Policy
    kind: Policy
    size: int | None


def decide(node: nodes.Node, policy: Policy, uneven: Sequence[int] = ()) -> Decision:
    """Returns the rule and the sharding that a dataset gets.

    Args:
        node: the plan.
        policy: the policy that the options ask for.
        uneven: how many replicas each worker has, if they have different numbers.

    Raises:
        ValueError: workers with different numbers of replicas would read batches of
            their own, of which each would need another number of steps.
    """
    kind = policy
    if policy == Policy.AUTO:
        is_by_file = not uneven and bool(file_nodes(node))
        kind = Policy.FILE if is_by_file else Policy.DATA
    if uneven and kind != Policy.DATA:
        raise ValueError(
            f"The workers have different numbers of replicas, {list(uneven)}, so they "
            f"cannot read batches of their own, as AutoShardPolicy.{policy.name} says. "
            "Use AutoShardPolicy.DATA, or distribute_datasets_from_function."
        )
    size = None if kind == Policy.DATA else batch_size(node)
    return Decision(policy, kind, size)


def shard_files(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    """Returns the plan of one worker when files are dealt.

    Raises:
        NotFoundError: nothing in the plan reads files.
        InvalidArgumentError: there are fewer files than workers.
    """
    found = file_nodes(node)
    if not found:
        raise errors.NotFoundError(
            "Found an unshardable source dataset: AutoShardPolicy.FILE deals files to "
            "workers, and this dataset reads none. Use AutoShardPolicy.DATA, or OFF "
            "if each worker's dataset is different already."
        )
    chosen = {id(n) for n in found}

    def change(n: nodes.Node) -> nodes.Node | None:
        return _deal_files(n, workers, worker) if id(n) in chosen else None

    return _rewrite_first(node, change)


def _rewrite_first(
    node: nodes.Node, change: Callable[[nodes.Node], nodes.Node | None]
) -> nodes.Node:
    """Does what `nodes.rewrite` does, but does not look into a changed node."""
    return change(node) or nodes.change_parents(
        node, lambda parent: _rewrite_first(parent, change)
    )


def _deal_files(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    """Returns a node with only this worker's files."""
    if isinstance(node, mixing.Interleave):
        # The names are dealt before they are shuffled, so that the workers deal alike.
        return dataclasses.replace(
            node, parent=_shard_names(node.parent, workers, worker)
        )
    # `file_nodes` has found a source of files, whose classes share no base class.
    total = len(node.files)  # type: ignore[attr-defined]
    if total < workers:
        raise too_few_files_error(total, workers)
    mine = node.files[worker::workers]  # type: ignore[attr-defined]
    return dataclasses.replace(node, files=mine)  # type: ignore[call-arg]


def _shard_names(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    """Returns a plan with only this worker's file names."""
    if isinstance(node, shuffling.Shuffle):
        inner = _shard_names(node.parent, workers, worker)
        return dataclasses.replace(node, parent=inner)
    if 0 <= node.cardinality < workers:
        raise too_few_files_error(node.cardinality, workers)
    return selecting.Shard(node, workers, worker)


def too_few_files_error(count: int, workers: int) -> Exception:
    """Returns the error for fewer files than workers."""
    return errors.InvalidArgumentError(
        "Could not apply FILE based sharding: the dataset only has "
        f"{count} file(s), which is not enough for the required {workers} shards/"
        "workers. If you are using datasets with distribution strategy, consider "
        "setting the auto sharding policy to either DATA or OFF using the "
        "`experimental_distribute.auto_shard_policy` option of "
        "`unisono.data.Options()`, or write the data to more files."
    )


def shard_hints(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    """Returns the plan of one worker when the user marked where to shard.

    With another policy than HINT the mark means nothing: it is one shard of one.
    """

    def change(n: nodes.Node) -> nodes.Node | None:
        if isinstance(n, selecting.Shard) and n.shards == selecting.SHARD_HINT:
            return dataclasses.replace(n, shards=workers, index=worker)
        return None

    return nodes.rewrite(node, change)


def plan_for_worker(
    node: nodes.Node, decision: Decision, workers: int, worker: int
) -> nodes.Node:
    """Returns the plan that one of several workers runs.

    DATA and OFF change nothing. A warning says so if AUTO has become DATA.
    """
    if workers > 1 and (decision.policy, decision.kind) == (Policy.AUTO, Policy.DATA):
        _log.warning(
            "AutoShardPolicy.AUTO: %s, so each of the %d workers runs the whole "
            "pipeline and keeps its share of every batch.",
            "the workers have different numbers of replicas"
            if file_nodes(node)
            else "the dataset reads no files",
            workers,
        )
    return shard_for_worker(node, decision, workers, worker)


def shard_for_worker(
    node: nodes.Node, decision: Decision, workers: int, worker: int
) -> nodes.Node:
    """Returns what `plan_for_worker` returns, without a warning."""
    hinted = decision.kind == Policy.HINT
    node = shard_hints(node, *((workers, worker) if hinted else (1, 0)))
    if workers > 1 and decision.kind == Policy.FILE:
        return shard_files(node, workers, worker)
    return node


def hints(node: nodes.Node) -> list[selecting.Shard]:
    """Returns the nodes that the user marked to be sharded."""
    return [
        n
        for n in nodes.walk(node)
        if isinstance(n, selecting.Shard) and n.shards == selecting.SHARD_HINT
    ]


def divided_spec(
    spec: elements.Spec, replicas: int, dynamic: bool = False
) -> elements.Spec:
    """Returns the spec of the part of a batch that each replica gets.

    Args:
        spec: the spec of a batch.
        replicas: how many replicas share it.
        dynamic: whether some may get fewer rows.
    """

    def divide_leaf(s: specs.TensorSpec) -> specs.TensorSpec:
        if not s.shape.rank:
            return s
        first = s.shape[0]
        fixed = first is not None and first % replicas == 0 and not dynamic
        shape = (first // replicas if fixed else None, *s.shape[1:])
        return specs.TensorSpec(shape, s.dtype)

    return elements.map_specs(divide_leaf, spec)


def per_replica_spec(spec: object, count: int) -> elements.Spec:
    """Returns a `PerReplicaSpec` of `count` replicas for each array of a spec."""
    return elements.map_specs(lambda s: specs.PerReplicaSpec(*[s] * count), spec)


def check_batched(node: nodes.Node, replicas: int) -> None:
    """Raises `IndexError` if the plan says that elements are single examples."""
    if replicas == 1:
        return
    source = node_before_selection(node)
    if isinstance(source, data_sources.DataSource):
        raise IndexError(
            f"Cannot split the elements over {replicas} replicas: {source} gives "
            "single examples. Batch them: Dataset.from_loader(source).batch(size)."
        )
    if hugging_face.holds_examples(source):
        raise IndexError(
            f"Cannot split the elements over {replicas} replicas: each row of a "
            "Hugging Face dataset is a single example. Batch it first: "
            "Dataset.from_loader(table).batch(size); if its rows are batches already, "
            "Dataset.from_loader(table).unbatch().batch(size)."
        )
    if not nodes.tells_spec(node):
        return
    for path, spec in elements.paths(node.spec):
        if spec.shape == ():
            raise IndexError(
                f"Cannot split the elements over {replicas} replicas: the "
                f"component {path or 'of an element'} is a single value and has no "
                "batch axis. Batch the dataset by the global batch size first: "
                "dataset.batch(size)."
            )


def empty_part(node: nodes.Node, workers: int, drops: bool, other: object) -> object:
    """Returns what a replica gets after the last element; None drops the step.

    TensorFlow's rule: if any size in the spec is not fixed, it becomes zero, and the
    arrays of fixed size are zeros; if all are fixed, one worker drops the step.

    Args:
        node: the dataset.
        workers: how many workers there are.
        drops: whether such a step is dropped in any case.
        other: the element of a replica that has one.
    """
    spec = node.spec
    if not nodes.tells_spec(node):
        # The spec is only that of the first element; this one may have another size.
        spec = mixing.join_specs(spec, elements.spec_of(other))
    fixed = all(s.shape.is_fully_defined() for s in elements.leaves(spec))
    if drops or (fixed and workers == 1):
        return None
    made = nodes.zeros(spec, unknown=0)
    # If all sizes are fixed, the step cannot be dropped because other workers have
    # data: no rows.
    return (
        elements.map_leaves(lambda x: x[:0] if x.ndim else x, made) if fixed else made
    )
