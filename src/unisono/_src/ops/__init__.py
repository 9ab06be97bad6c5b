"""TensorFlow's everyday names: functions of arrays, control flow, random numbers."""

# The modules that have the names of each public module, in the order of the search for
# a name. The public modules import the same ones for type checkers.
MODULES = {
    "unisono": (
        "unisono._src.ops.making",
        "unisono._src.ops.arithmetic",
        "unisono._src.ops.reductions",
        "unisono._src.ops.shaping",
        "unisono._src.ops.indexing",
        "unisono._src.ops.matrices",
        "unisono._src.ops.sorting",
        "unisono._src.ops.clipping",
        "unisono._src.ops.element_types",
        "unisono._src.ops.printing",
        "unisono._src.ops.device_scope",
        "unisono._src.ops.name_scope",
        "unisono._src.ops.execution_mode",
        "unisono._src.ops.init_scope",
        "unisono._src.ops.control_flow",
        "unisono._src.ops.mapping",
        "unisono._src.ops.tensor_array",
        "unisono._src.ops.custom_gradients",
        "unisono._src.ops.host_functions",
        "unisono._src.ops.checks",
        "unisono._src.ops.shape_checks",
        "unisono._src.foundation.tensor_shape",
    ),
    "unisono.linalg": (
        "unisono._src.ops.matrices",
        "unisono._src.ops.decompositions",
        "unisono._src.ops.making",
        "unisono._src.ops.activations",
    ),
    "unisono.math": (
        "unisono._src.ops.arithmetic",
        "unisono._src.ops.reductions",
        "unisono._src.ops.mathematics",
        "unisono._src.ops.segments",
        "unisono._src.ops.activations",
    ),
    "unisono.nn": (
        "unisono._src.ops.activations",
        "unisono._src.ops.convolutions",
        "unisono._src.ops.pooling",
        "unisono._src.ops.arithmetic",
        "unisono._src.ops.segments",
    ),
}
