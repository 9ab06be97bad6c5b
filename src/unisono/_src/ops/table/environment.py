"""Names of devices, scopes, structures and types, which are written by hand."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_DEVICES = "unisono._src.machines.physical_devices"
_LOGICAL = "unisono._src.machines.devices"
_SETTINGS = "unisono._src.machines.runtime_settings"
_TYPES = "unisono._src.ops.element_types"
_ORDER = "unisono._src.ops.execution_order"
_NEST = "unisono._src.ops.structures"
_MODE = "unisono._src.ops.execution_mode"
_PLACE = "unisono._src.ops.device_scope"

ROWS = (
    Name(
        "Tensor",
        "The class of arrays, which is `jax.Array`.",
        target=f"{_TYPES}:Tensor",
        difference=(
            "Arrays have JAX's methods, `numpy()`, `get_shape()` and `set_shape()`."
        ),
    ),
    Name(
        "TensorShape",
        "The shape of an array, in which sizes may be unknown.",
        target="unisono._src.foundation.tensor_shape:TensorShape",
        difference="Shapes of arrays are plain tuples; `dims` are numbers.",
    ),
    Name(
        "newaxis", "None, which makes an axis in an index.", target=f"{_TYPES}:newaxis"
    ),
    Name(
        "is_tensor",
        "Returns whether a value is an array of JAX, a variable or an `IndexedSlices`.",
        target=f"{_TYPES}:is_tensor",
    ),
    Name(
        "dtypes.as_dtype",
        "Returns the element type that a name or a type of NumPy or Python means.",
        target=f"{_TYPES}:as_dtype",
        also=("as_dtype",),
        difference="Element types are NumPy's.",
    ),
    Name(
        "dtypes.DType",
        "The class of element types, which is `numpy.dtype`.",
        target=f"{_TYPES}:DType",
        also=("DType",),
        difference="Attributes are NumPy's: `numpy.finfo(t).max` for `t.max`.",
    ),
    Name(
        "control_dependencies",
        "Returns a context manager that changes nothing: statements run in order.",
        target=f"{_ORDER}:control_dependencies",
    ),
    Name(
        "group",
        "Returns None: the given operations have run already.",
        target=f"{_ORDER}:group",
    ),
    Name("no_op", "Does nothing, and returns None.", target=f"{_ORDER}:no_op"),
    Name(
        "name_scope",
        "Prefixes the names of variables and operations that are made in a block.",
        target="unisono._src.ops.name_scope:name_scope",
    ),
    Name(
        "device",
        "Returns a context manager whose block makes its values on a device.",
        target=f"{_PLACE}:device",
        difference="It changes nothing in a `function` and in replicas.",
    ),
    Name(
        "nest.assert_same_structure",
        "Raises unless two structures have one layout.",
        target=f"{_NEST}:assert_same_structure",
    ),
    Name(
        "nest.flatten",
        "Returns the leaves of a structure as a list, in the order of sorted keys.",
        target=f"{_NEST}:flatten",
    ),
    Name(
        "nest.is_nested",
        "Returns whether a value is a list, a tuple or a mapping.",
        target=f"{_NEST}:is_nested",
    ),
    Name(
        "nest.map_structure",
        "Returns a structure with the results of a function on the leaves of others.",
        target=f"{_NEST}:map_structure",
    ),
    Name(
        "nest.pack_sequence_as",
        "Returns a structure like another one with other leaves.",
        target=f"{_NEST}:pack_sequence_as",
    ),
    Name(
        "config.get_soft_device_placement",
        "Returns whether `device` takes the default device for one that is missing.",
        target=f"{_PLACE}:get_soft_device_placement",
    ),
    Name(
        "config.set_soft_device_placement",
        "Sets whether `device` takes the default device for one that is missing.",
        target=f"{_PLACE}:set_soft_device_placement",
    ),
    Name(
        "config.PhysicalDevice",
        "A processor of the machine, as `list_physical_devices` lists it.",
        target=f"{_DEVICES}:PhysicalDevice",
    ),
    Name(
        "config.LogicalDeviceConfiguration",
        "One of the devices that a processor is split into.",
        target=f"{_DEVICES}:LogicalDeviceConfiguration",
        also=("config.experimental.VirtualDeviceConfiguration",),
    ),
    Name(
        "config.list_logical_devices",
        "Returns the devices of this process, of one type if it is given.",
        target=f"{_LOGICAL}:list_logical_devices",
        also=("config.experimental.list_logical_devices",),
    ),
    Name(
        "config.list_physical_devices",
        "Returns the processors of this machine, of one type if it is given.",
        target=f"{_DEVICES}:list_physical_devices",
        also=("config.experimental.list_physical_devices",),
    ),
    Name(
        "config.get_visible_devices",
        "Returns the processors that the program uses.",
        target=f"{_DEVICES}:get_visible_devices",
        also=("config.experimental.get_visible_devices",),
    ),
    Name(
        "config.set_visible_devices",
        "Chooses the processors that the program uses, before JAX has started.",
        target=f"{_DEVICES}:set_visible_devices",
        also=("config.experimental.set_visible_devices",),
        difference="The CPU cannot be hidden.",
    ),
    Name(
        "config.get_logical_device_configuration",
        "Returns how a processor is split into devices; None if nothing was said.",
        target=f"{_DEVICES}:get_logical_device_configuration",
        also=("config.experimental.get_virtual_device_configuration",),
    ),
    Name(
        "config.set_logical_device_configuration",
        "Splits the CPU into several devices, before JAX has started.",
        target=f"{_DEVICES}:set_logical_device_configuration",
        also=("config.experimental.set_virtual_device_configuration",),
        difference="A GPU is not split, and its memory not limited.",
    ),
    Name(
        "config.experimental.get_memory_growth",
        "Returns whether JAX takes a GPU's memory as it needs it.",
        target=f"{_DEVICES}:get_memory_growth",
    ),
    Name(
        "config.experimental.set_memory_growth",
        "Lets JAX take a GPU's memory as it needs it, instead of most of it at once.",
        target=f"{_DEVICES}:set_memory_growth",
        difference="It counts for all GPUs of the process.",
    ),
    Name(
        "config.experimental.get_memory_info",
        "Returns the bytes that arrays take on a device: ``current`` and ``peak``.",
        target=f"{_DEVICES}:get_memory_info",
    ),
    Name(
        "config.optimizer.get_jit",
        'Returns the setting of `set_jit`: ``"autoclustering"`` or the empty text.',
        target=f"{_SETTINGS}:get_jit",
    ),
    Name(
        "config.optimizer.set_jit",
        "Keeps the setting, which has no effect: XLA compiles every `function`.",
        target=f"{_SETTINGS}:set_jit",
        difference="It has no effect.",
    ),
    Name(
        "config.optimizer.get_experimental_options",
        "Returns the options that `set_experimental_options` was given.",
        target=f"{_SETTINGS}:get_experimental_options",
    ),
    Name(
        "config.optimizer.set_experimental_options",
        "Keeps options of TensorFlow's graph optimizer, which have no effect.",
        target=f"{_SETTINGS}:set_experimental_options",
        difference="It has no effect.",
    ),
    Name(
        "config.threading.get_inter_op_parallelism_threads",
        "Returns the number that was set; 0 if none was.",
        target=f"{_SETTINGS}:get_inter_op_parallelism_threads",
    ),
    Name(
        "config.threading.get_intra_op_parallelism_threads",
        "Returns the number that was set; 0 if none was.",
        target=f"{_SETTINGS}:get_intra_op_parallelism_threads",
    ),
    Name(
        "config.threading.set_inter_op_parallelism_threads",
        "Keeps the number, which has no effect: XLA chooses its threads.",
        target=f"{_SETTINGS}:set_inter_op_parallelism_threads",
        difference="It has no effect.",
    ),
    Name(
        "config.threading.set_intra_op_parallelism_threads",
        "Keeps the number, which has no effect: XLA chooses its threads.",
        target=f"{_SETTINGS}:set_intra_op_parallelism_threads",
        difference="It has no effect.",
    ),
    Name(
        "executing_eagerly",
        "Returns whether the code computes at once, and not in a compiled `function`.",
        target=f"{_MODE}:executing_eagerly",
    ),
    Name(
        "get_logger",
        "Returns the logger of this package.",
        target=f"{_MODE}:get_logger",
    ),
    Name(
        "inside_function",
        "Returns whether the code is being traced by a `function`.",
        target=f"{_MODE}:inside_function",
    ),
    Name(
        "get_static_value",
        "Returns the value of an array as NumPy's; None if only a program computes it.",
        target=f"{_MODE}:get_static_value",
    ),
    Name(
        "is_symbolic_tensor",
        "Returns whether a value is an array that a program computes.",
        target=f"{_MODE}:is_symbolic_tensor",
    ),
    Name(
        "autograph.set_verbosity",
        "Changes nothing: there is no autograph that could tell what it does.",
        target=f"{_MODE}:set_verbosity",
        difference="It has no effect.",
    ),
    Name(
        "autograph.experimental.do_not_convert",
        "Returns a function as it is: autograph converts none here.",
        target=f"{_MODE}:do_not_convert",
    ),
    Name(
        "autograph.experimental.set_loop_options",
        "Changes nothing: Python's loops are unrolled; `while_loop` has these options.",
        target=f"{_MODE}:set_loop_options",
        difference="It has no effect.",
    ),
    Name(
        "config.experimental.enable_op_determinism",
        "Makes GPUs give the same numbers in each run, before JAX has started.",
        target=f"{_DEVICES}:enable_op_determinism",
    ),
    Name(
        "config.experimental.enable_tensor_float_32_execution",
        "Sets whether GPUs may multiply float32 matrices with fewer bits, as they do.",
        target=f"{_DEVICES}:enable_tensor_float_32_execution",
    ),
    Name(
        "config.experimental.tensor_float_32_execution_enabled",
        "Returns whether GPUs may multiply float32 matrices with fewer bits.",
        target=f"{_DEVICES}:tensor_float_32_execution_enabled",
    ),
    Name(
        "config.experimental.get_device_details",
        "Returns the known details of a processor; none for a CPU.",
        target=f"{_DEVICES}:get_device_details",
        difference="A GPU has no `compute_capability`.",
    ),
    Name(
        "init_scope",
        "Runs a block at once and outside tapes, also while a function is traced.",
        target="unisono._src.ops.init_scope:init_scope",
        difference="In a replica of a compiled step it is in cross-replica context.",
    ),
    Name(
        "get_current_name_scope",
        "Returns the names of the open `name_scope` blocks, without the last ``/``.",
        target="unisono._src.ops.name_scope:get_current_name_scope",
    ),
)
