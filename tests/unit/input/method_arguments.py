"""The arguments of the methods of a dataset, as their signatures tell."""

import inspect

import unisono as uni

# Accepted for compatibility with TensorFlow, without effect.
IGNORED = {
    "map": {"deterministic", "synchronous", "use_unbounded_threadpool"},
    "batch": {"deterministic"},
    "interleave": {"deterministic"},
}
# Structures and specs, which the method compares with those of the elements.
COMPARED = {
    "from_tensors": {"tensors"},
    "from_tensor_slices": {"tensors"},
    "from_generator": {"output_types", "output_shapes", "args", "output_signature"},
    "zip": {"args", "datasets"},
    "sample_from_datasets": {"weights"},
    "from_loader": {"loader"},
    "load": {"element_spec"},
    "save": {"checkpoint_args"},
    "padded_batch": {"padded_shapes", "padding_values"},
    "scan": {"initial_state"},
    "with_options": {"options"},
    "bucket_by_sequence_length": {"padded_shapes", "padding_values"},
    "rejection_resample": {"target_dist", "initial_dist"},
    "reduce": {"initial_state"},
}
# Names of a dataset that are no methods with arguments of a program.
_PLAIN = {"element_spec", "prepared"}


# The arguments of each public method.
METHODS = {
    name: [
        p
        for p in inspect.signature(getattr(uni.data.Dataset, name)).parameters
        if p not in ("self", "name")
    ]
    for name in dir(uni.data.Dataset)
    if not name.startswith("_") and name not in _PLAIN
}


def unchecked(method):
    """Returns the arguments of a method that are ignored, or checked in use."""
    return IGNORED.get(method, set()) | COMPARED.get(method, set())
