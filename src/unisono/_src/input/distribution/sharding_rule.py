"""How a dataset is distributed: the rule that splits it, the files of a worker."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, final

import numpy as np

from unisono._src.execution import specs
from unisono._src.foundation import errors
from unisono._src.input.plan import elements, nodes
from unisono._src.input.stages import (
    asserting,
    batching,
    cache_files,
    cache_memory,
    carried_options,
    dataset_options,
    file_listing,
    filtering,
    mapping,
    mixing,
    prefetch,
    selecting,
    shuffling,
    windowing,
)

_LOG = logging.getLogger("unisono")
Policy = dataset_options.AutoShardPolicy

_FILES = file_listing.FILES
BATCHES = (batching.Batching, batching.Rebatch)
_SEES_THROUGH = (
    filtering.Filter,
    selecting.Take,
    selecting.Skip,
    selecting.Shard,
    selecting.Repeat,
    shuffling.Shuffle,
    prefetch.Prefetch,
    cache_memory.Cache,
    carried_options.WithOptions,
    asserting.AssertCardinality,
    cache_files.FileCache,
)
_FILES_SEEN_THROUGH = (
    *_SEES_THROUGH,
    mapping.Map,
    batching.Batching,
    batching.Rebatch,
    batching.Unbatch,
    windowing.Window,
    batching.Opaque,
    mixing.Interleave,
)


def batch_size(node: nodes.Node) -> int | None:
    """The number of examples in a full batch, if the plan tells it.

    TensorFlow's rule: the first axis if it is fixed in every component, else what the
    last `batch` says, unless a transformation such as `map` stands behind it.
    """
    walked = walked_batch_size(node)
    if walked is not None or not _may_be_static(node):
        return walked
    sizes = {s.shape[0] if s.shape else None for s in elements.leaves(node.spec)}
    return sizes.pop() if len(sizes) == 1 else None


def _may_be_static(node: nodes.Node) -> bool:
    """Whether asking for the spec can tell more; it may call a user's function."""
    last = next((n for n in nodes.walk(node) if isinstance(n, BATCHES)), None)
    return last is None or last.drop


def before_selection(node: nodes.Node) -> nodes.Node:
    """The node whose elements a plan gives, where it only selects some at its end."""
    while isinstance(node, _SEES_THROUGH):
        node = node.parents[0]
    return node


def walked_batch_size(node: nodes.Node) -> int | None:
    """What the last `batch` says, if nothing stands behind it that may change it."""
    node = before_selection(node)
    if isinstance(node, batching.Batching):
        return node.size
    if isinstance(node, (mixing.Zip, mixing.Concatenate)):
        sizes = {walked_batch_size(n) for n in node.inputs}
        return sizes.pop() if len(sizes) == 1 else None
    return None


def is_fixed(node: nodes.Node, look: bool) -> bool | None:
    """Whether the spec fixes every size; None if only an element could tell.

    Args:
        node: the plan.
        look: whether an element may be looked at, which can cost a call or a read.
    """
    if not look and not nodes.tells_spec(node):
        last = node
        while isinstance(last, _SEES_THROUGH):
            last = last.parents[0]
        varies = isinstance(last, batching.Batching) and not last.drop
        return False if varies else None
    leaves = elements.leaves(node.spec)
    return all(s.shape is not None and None not in s.shape for s in leaves)


def is_constant(node: nodes.Node) -> bool:
    """Whether the plan promises elements of one shape without end."""
    if node.cardinality != nodes.INFINITE or not nodes.tells_spec(node):
        return False
    last = node
    while isinstance(last, _SEES_THROUGH):
        last = last.parents[0]
    inner = node.spec
    if isinstance(last, batching.Batch) and last.parent.cardinality == nodes.INFINITE:
        # Batches of something endless are all full.
        inner = last.parent.spec
    return all(
        s.shape is not None and None not in s.shape for s in elements.leaves(inner)
    )


def file_nodes(node: nodes.Node) -> list[nodes.Node]:
    """The nodes whose files are dealt to workers; empty if data must be dealt.

    They are sources of files, and `interleave` or `flat_map` whose function reads
    some: then what it is applied to is dealt.
    """
    if isinstance(node, _FILES):
        return [node]
    if isinstance(node, mixing.Interleave) and _reads_files(node):
        return [node]
    if isinstance(node, _FILES_SEEN_THROUGH):
        return file_nodes(node.parents[0])
    if isinstance(node, (mixing.Zip, mixing.Concatenate)):
        found = [file_nodes(n) for n in node.inputs]
        return [n for part in found for n in part] if all(found) else []
    return []


def _reads_files(node: mixing.Interleave) -> bool:
    return any(isinstance(n, _FILES) for n in nodes.walk(node.sample()))


@final
@dataclasses.dataclass(frozen=True)
class Decision:
    """How a dataset is split.

    Attributes:
        policy: what the options asked for.
        kind: what it came to: FILE, DATA, OFF or HINT.
        size: examples in a full batch, if the parts have fixed sizes that are filled
            in order (rule B); None cuts chunks of equal size (rule A).
    """

    policy: Policy
    kind: Policy
    size: int | None


def decide(node: nodes.Node, policy: Policy) -> Decision:
    """Which rule and which sharding a dataset gets."""
    kind = policy
    if policy == Policy.AUTO:
        kind = Policy.FILE if file_nodes(node) else Policy.DATA
    size = None if kind == Policy.DATA else batch_size(node)
    return Decision(policy, kind, size)


def shard_files(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    """The plan of one worker when files are dealt.

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
        return _dealt(n, workers, worker) if id(n) in chosen else None

    return _rewrite_first(node, change)


def _rewrite_first(node: nodes.Node, change: Any) -> nodes.Node:
    """Like `nodes.rewrite`, but a changed node is not looked into."""
    replacement: nodes.Node | None = change(node)
    if replacement is not None:
        return replacement
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if isinstance(value, nodes.Node):
            fields[field.name] = _rewrite_first(value, change)
        elif isinstance(value, tuple) and value and isinstance(value[0], nodes.Node):
            fields[field.name] = tuple(_rewrite_first(v, change) for v in value)
    return dataclasses.replace(node, **fields) if fields else node


def _dealt(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    if isinstance(node, mixing.Interleave):
        # Behind a shuffle of the names: the same deal on every worker.
        return dataclasses.replace(
            node, parent=_shard_names(node.parent, workers, worker)
        )
    total = len(node.files)  # type: ignore[attr-defined]
    if total < workers:
        raise too_few_files(total, workers)
    mine = node.files[worker::workers]  # type: ignore[attr-defined]
    return dataclasses.replace(node, files=mine)  # type: ignore[call-arg]


def _shard_names(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    if isinstance(node, shuffling.Shuffle):
        inner = _shard_names(node.parent, workers, worker)
        return dataclasses.replace(node, parent=inner)
    if 0 <= node.cardinality < workers:
        raise too_few_files(node.cardinality, workers)
    return selecting.Shard(node, workers, worker)


def too_few_files(count: int, workers: int) -> Exception:
    """Some worker would have nothing to read."""
    return errors.InvalidArgumentError(
        "Could not apply FILE based sharding: the dataset only has "
        f"{count} file(s), which is not enough for the required {workers} shards/"
        "workers. If you are using datasets with distribution strategy, consider "
        "setting the auto sharding policy to either DATA or OFF using the "
        "`experimental_distribute.auto_shard_policy` option of "
        "`unisono.data.Options()`, or write the data to more files."
    )


def shard_hints(node: nodes.Node, workers: int, worker: int) -> nodes.Node:
    """The plan of one worker when the user marked where to shard.

    With another policy than HINT the mark means nothing: it is one shard of one.
    """

    def change(n: nodes.Node) -> nodes.Node | None:
        if isinstance(n, selecting.Shard) and n.shards == selecting.SHARD_HINT:
            return dataclasses.replace(n, shards=workers, index=worker)
        return None

    return nodes.rewrite(node, change)


def for_worker(
    node: nodes.Node, decision: Decision, workers: int, worker: int
) -> nodes.Node:
    """The plan that one of several workers runs; DATA and OFF change nothing."""
    if workers > 1 and (decision.policy, decision.kind) == (Policy.AUTO, Policy.DATA):
        _LOG.warning(
            "AutoShardPolicy.AUTO: the dataset reads no files, so each of the %d "
            "workers runs the whole pipeline and keeps its share of every batch.",
            workers,
        )
    return share_of(node, decision, workers, worker)


def share_of(
    node: nodes.Node, decision: Decision, workers: int, worker: int
) -> nodes.Node:
    """The same, for whoever only wants to know."""
    hinted = decision.kind == Policy.HINT
    node = shard_hints(node, *((workers, worker) if hinted else (1, 0)))
    if workers > 1 and decision.kind == Policy.FILE:
        return shard_files(node, workers, worker)
    return node


def hints(node: nodes.Node) -> list[selecting.Shard]:
    """Where the user marked a plan to be sharded."""
    return [
        n
        for n in nodes.walk(node)
        if isinstance(n, selecting.Shard) and n.shards == selecting.SHARD_HINT
    ]


def divided_spec(spec: Any, replicas: int, dynamic: bool = False) -> Any:
    """The spec of what each replica gets of a batch.

    Args:
        spec: of a batch.
        replicas: how many share it.
        dynamic: whether some may get less.
    """

    def one(s: Any) -> Any:
        if not s.shape:
            return s
        first = s.shape[0]
        fixed = first is not None and first % replicas == 0 and not dynamic
        shape = (first // replicas if fixed else None, *s.shape[1:])
        return specs.TensorSpec(shape, s.dtype)

    return elements.map_leaves(one, spec)


def empty_part(node: nodes.Node, workers: int, drops: bool, other: Any) -> Any:
    """What a replica gets after the last element; None if the step is dropped.

    TensorFlow's rule: if any size in the spec is not fixed, it becomes zero, and the
    arrays of fixed size are zeros; if all are fixed, one worker drops the step.

    Args:
        node: the dataset.
        workers: how many there are.
        drops: whether such a step is dropped in any case.
        other: the element of a replica that has one.
    """
    spec = node.spec
    if not nodes.tells_spec(node):
        # The spec is that of a first element, and this one may be of another size.
        spec = mixing.joined_spec(spec, elements.spec_of(other))
    leaves = list(elements.leaves(spec))
    fixed = all(s.shape is not None and None not in s.shape for s in leaves)
    if drops or (fixed and workers == 1):
        return None

    def one(s: Any) -> np.ndarray:
        shape = [0 if size is None else size for size in s.shape or ()]
        if fixed and shape:
            shape[0] = 0
        if s.dtype.kind == "O":
            return np.full(shape, b"", object)
        return np.zeros(shape, s.dtype)

    return elements.map_leaves(one, spec)
