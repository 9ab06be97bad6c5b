"""Replacements for names of TensorFlow 1, below ``tf.compat.v1``, and for old names."""

_FLAGS = "Use absl.flags or argparse."
_OPTIMIZER = "Use unisono.keras.optimizers, or unisono.optimizers.Optimizer with optax."

INSTEAD = {
    "GPUOptions": "Set XLA_PYTHON_CLIENT_MEM_FRACTION in the environment.",
    "Session": "Call the function itself.",
    "InteractiveSession": "Call the function itself.",
    "app": _FLAGS,
    "assign": "Use Variable.assign.",
    "assign_add": "Use Variable.assign_add.",
    "data.make_initializable_iterator": "Use iter(dataset).",
    "disable_eager_execution": (
        "Leave it out, and decorate functions that should be compiled with "
        "unisono.function."
    ),
    "disable_v2_behavior": "Leave it out, and use the names of TensorFlow 2.",
    "enable_eager_execution": "Leave it out: unisono always behaves this way.",
    "enable_v2_behavior": "Leave it out: unisono always behaves this way.",
    "flags": _FLAGS,
    "get_default_graph": "There are no graphs.",
    "get_default_session": "There are no sessions.",
    "gfile": "Use unisono.io.gfile, such as unisono.io.gfile.GFile.",
    "global_variables_initializer": (
        "Leave it out: a variable has its value when it is created."
    ),
    "gradients": "Use unisono.GradientTape or unisono.grad.",
    "keras": "Use unisono.keras.",
    "layers": "Use unisono.keras.layers.",
    "local_variables_initializer": (
        "Leave it out: a variable has its value when it is created."
    ),
    "logging": "Use Python's logging.",
    "losses": "Use unisono.keras.losses, or optax.",
    "metrics": "Use unisono.metrics or unisono.keras.metrics.",
    "nn.rnn_cell": "Use unisono.keras.layers.RNN.",
    "placeholder": "Make it an argument of a unisono.function.",
    "reset_default_graph": "Leave it out: there are no graphs.",
    "summary": "Use unisono.summary.",
    "train.AdamOptimizer": _OPTIMIZER,
    "train.GradientDescentOptimizer": _OPTIMIZER,
    "train.MomentumOptimizer": _OPTIMIZER,
    "train.MonitoredTrainingSession": (
        "Write a training loop, with unisono.train.Checkpoint."
    ),
    "train.Optimizer": _OPTIMIZER,
    "train.RMSPropOptimizer": _OPTIMIZER,
    "train.Saver": "Use unisono.train.Checkpoint.",
    "trainable_variables": "Use `trainable_variables` of the model or Module.",
    "variable_scope": "Create the variables once, in a unisono.Module.",
}

# Names of earlier versions of TensorFlow -> the names that they have in TensorFlow 2.
RENAMED = {
    "arg_max": "argmax",
    "arg_min": "argmin",
    "autodiff.GradientTape": "GradientTape",
    "ceil": "math.ceil",
    "config.experimental.get_visible_devices": "config.get_visible_devices",
    "config.experimental.list_logical_devices": "config.list_logical_devices",
    "config.experimental.list_physical_devices": "config.list_physical_devices",
    "config.experimental.set_visible_devices": "config.set_visible_devices",
    "contrib.distribute.MirroredStrategy": "distribute.MirroredStrategy",
    "contrib.distribute.OneDeviceStrategy": "distribute.OneDeviceStrategy",
    "decode_raw": "io.decode_raw",
    "diag": "linalg.diag",
    "dtypes.cast": "cast",
    "dtypes.complex": "complex",
    "dtypes.saturate_cast": "saturate_cast",
    "div": "math.divide",
    "erf": "math.erf",
    "floordiv": "math.floordiv",
    "global_norm": "linalg.global_norm",
    "is_finite": "math.is_finite",
    "is_inf": "math.is_inf",
    "is_nan": "math.is_nan",
    "keras.experimental.CosineDecay": "keras.optimizers.schedules.CosineDecay",
    "log": "math.log",
    "log1p": "math.log1p",
    "log_sigmoid": "math.log_sigmoid",
    "matrix_inverse": "linalg.inv",
    "matrix_transpose": "linalg.matrix_transpose",
    "mod": "math.floormod",
    "parse_example": "io.parse_example",
    "parse_single_example": "io.parse_single_example",
    "parse_single_sequence_example": "io.parse_single_sequence_example",
    "parse_tensor": "io.parse_tensor",
    "python_io.TFRecordOptions": "io.TFRecordOptions",
    "python_io.TFRecordWriter": "io.TFRecordWriter",
    "random_normal": "random.normal",
    "random_shuffle": "random.shuffle",
    "random_uniform": "random.uniform",
    "rsqrt": "math.rsqrt",
    "segment_sum": "math.segment_sum",
    "set_random_seed": "random.set_seed",
    "squared_difference": "math.squared_difference",
    "trace": "linalg.trace",
    "truncated_normal": "random.truncated_normal",
    "unsorted_segment_sum": "math.unsorted_segment_sum",
    "xlogy": "math.xlogy",
}
