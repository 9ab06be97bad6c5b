"""Replacements for names of TensorFlow 1, below ``tf.compat.v1``."""

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
        "Leave it out; decorate what shall be compiled with unisono.function."
    ),
    "disable_v2_behavior": "Leave it out, and write the names of TensorFlow 2.",
    "enable_eager_execution": "Leave it out: it is always so.",
    "enable_v2_behavior": "Leave it out: it is always so.",
    "flags": _FLAGS,
    "get_default_graph": "There are no graphs.",
    "get_default_session": "There are no sessions.",
    "gfile": "Use open, pathlib or glob.",
    "global_variables_initializer": "Leave it out: variables have values when made.",
    "gradients": "Use unisono.GradientTape or unisono.grad.",
    "keras": "Use unisono.keras.",
    "layers": "Use unisono.keras.layers.",
    "local_variables_initializer": "Leave it out: variables have values when made.",
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
    "train.MonitoredTrainingSession": "Write the loop, with unisono.train.Checkpoint.",
    "train.Optimizer": _OPTIMIZER,
    "train.RMSPropOptimizer": _OPTIMIZER,
    "train.Saver": "Use unisono.train.Checkpoint.",
    "trainable_variables": "Use `trainable_variables` of the model or Module.",
    "variable_scope": "Make the variables once, in a unisono.Module.",
}
