"""The table of the arguments of `Dataset`'s methods, and of the check of each.

Every public method has a row, and calls `check` first. A test compares the table with
the methods, so that no argument is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unisono._src.input.stages import argument_checks as checks

_Check = Callable[[Any, str], Any]


def _pass(value: object, _: str) -> object:
    return value


# Accepted for compatibility with TensorFlow, without effect.
_IGNORED = _pass
# Structures and specs, which the method compares with those of the elements.
_COMPARED = _pass

TABLE: dict[str, dict[str, _Check]] = {
    "from_tensors": {"tensors": _COMPARED},
    "from_tensor_slices": {"tensors": _COMPARED},
    "from_generator": {
        "generator": checks.generator,
        "output_types": _COMPARED,
        "output_shapes": _COMPARED,
        "args": _COMPARED,
        "output_signature": _COMPARED,
    },
    "range": {"args": checks.integers, "output_type": checks.number_type},
    "counter": {
        "start": checks.integer,
        "step": checks.integer,
        "dtype": checks.number_type,
    },
    "random": {
        "seed": checks.seed,
        "rerandomize_each_iteration": checks.optional(checks.flag),
    },
    "list_files": {
        "file_pattern": checks.paths,
        "shuffle": checks.optional(checks.flag),
        "seed": checks.seed,
    },
    "zip": {"args": _COMPARED, "datasets": _COMPARED},
    "choose_from_datasets": {
        "datasets": checks.plans,
        "choice_dataset": checks.plan,
        "stop_on_empty_dataset": checks.flag,
    },
    "sample_from_datasets": {
        "datasets": checks.plans,
        "weights": _COMPARED,
        "seed": checks.seed,
        "stop_on_empty_dataset": checks.flag,
        "rerandomize_each_iteration": checks.optional(checks.flag),
    },
    "from_loader": {"loader": _COMPARED},
    "load": {
        "path": checks.path,
        "element_spec": _COMPARED,
        "compression": checks.compression,
        "reader_func": checks.optional(checks.function),
        "wait": checks.flag,
    },
    "save": {
        "path": checks.path,
        "compression": checks.compression,
        "shard_func": checks.optional(checks.function),
        "checkpoint_args": _COMPARED,
    },
    "map": {
        "map_func": checks.function,
        "num_parallel_calls": checks.parallel,
        "deterministic": _IGNORED,
        "synchronous": _IGNORED,
        "use_unbounded_threadpool": _IGNORED,
    },
    "filter": {"predicate": checks.function},
    "batch": {
        "batch_size": checks.positive_integer,
        "drop_remainder": checks.flag,
        "num_parallel_calls": checks.parallel,
        "deterministic": _IGNORED,
    },
    "padded_batch": {
        "batch_size": checks.positive_integer,
        "padded_shapes": _COMPARED,
        "padding_values": _COMPARED,
        "drop_remainder": checks.flag,
    },
    "unbatch": {},
    "rebatch": {"batch_size": checks.batch_sizes, "drop_remainder": checks.flag},
    "shuffle": {
        "buffer_size": checks.integer,
        "seed": checks.seed,
        "reshuffle_each_iteration": checks.optional(checks.flag),
    },
    "repeat": {"count": checks.optional(checks.integer)},
    "take": {"count": checks.integer},
    "skip": {"count": checks.integer},
    "shard": {"num_shards": checks.integer, "index": checks.integer},
    "prefetch": {"buffer_size": checks.optional(checks.integer)},
    "interleave": {
        "map_func": checks.function,
        "cycle_length": checks.cycle,
        "block_length": checks.optional(checks.positive_integer),
        "num_parallel_calls": checks.parallel,
        "deterministic": _IGNORED,
    },
    "flat_map": {"map_func": checks.function},
    "concatenate": {"dataset": checks.plan},
    "cache": {"filename": checks.path},
    "enumerate": {"start": checks.integer},
    "window": {
        "size": checks.positive_integer,
        "shift": checks.optional(checks.positive_integer),
        "stride": checks.positive_integer,
        "drop_remainder": checks.flag,
    },
    "take_while": {"predicate": checks.function},
    "scan": {"initial_state": _COMPARED, "scan_func": checks.function},
    "unique": {},
    "ignore_errors": {"log_warning": checks.flag},
    "apply": {"transformation_func": checks.function},
    "with_options": {"options": _COMPARED},
    "group_by_window": {
        "key_func": checks.function,
        "reduce_func": checks.function,
        "window_size": checks.optional(checks.integer),
        "window_size_func": checks.optional(checks.function),
    },
    "bucket_by_sequence_length": {
        "element_length_func": checks.function,
        "bucket_boundaries": checks.integers,
        "bucket_batch_sizes": checks.integers,
        "padded_shapes": _COMPARED,
        "padding_values": _COMPARED,
        "pad_to_bucket_boundary": checks.flag,
        "no_padding": checks.flag,
        "drop_remainder": checks.flag,
    },
    "rejection_resample": {
        "class_func": checks.function,
        "target_dist": _COMPARED,
        "initial_dist": _COMPARED,
        "seed": checks.seed,
    },
    "cardinality": {},
    "options": {},
    "as_numpy_iterator": {},
    "get_single_element": {},
    "reduce": {"initial_state": _COMPARED, "reduce_func": checks.function},
}


def check(method: str, **given: object) -> dict[str, Any]:
    """Returns the arguments of a method, checked and converted.

    Args:
        method: the name of the method.
        **given: its arguments, or some of them.

    Raises:
        TypeError: an argument has another type; the message names it.
        ValueError: an argument has a value that is not allowed.

    >>> check("take", count=True)
    {'count': 1}
    """
    row = TABLE[method]
    return {name: row[name](value, name) for name, value in given.items()}
