"""Tables of names that differ from TensorFlow's here, and of those that moved.

They are for ``unisono check`` and for the tables in ``docs/from-tensorflow``. Names
that are not here have their rows in `families`. Everyday names say themselves how they
differ.
"""

_NUMPY = "The function runs in Python, on NumPy arrays."
_ORDER = "For the same seed the order differs from TensorFlow's."
_FORMAT = "The file format differs from TensorFlow's, whose files cannot be read."
_SAVED = (
    "The format is StableHLO, for functions with an input_signature; TensorFlow and "
    "TensorFlow Serving cannot read it."
)
_XLA = "XLA chooses the algorithm; the numbers are the same."
_STEP = "There is a global step only inside the model_fn of an Estimator."
_TPU = "It works on any devices; without a TPU they are arranged like those of a TPU."

# Dotted path without ``tf.`` -> how the name here differs, a sentence.
DIFFERENCES = {
    "Tensor.device": "It is JAX's device object, not a string.",
    "Tensor.dtype": "It is a NumPy dtype.",
    "Tensor.shape": "It is a tuple of ints.",
    "Variable.initial_value": "It raises an error, as in TensorFlow outside graphs.",
    "__version__": "It is the version of unisono.",
    "data.Dataset.cache": f"Without a filename it is the same. {_FORMAT}",
    "data.Dataset.filter": _NUMPY,
    "data.Dataset.flat_map": _NUMPY,
    "data.Dataset.interleave": _NUMPY,
    "data.Dataset.load": _FORMAT,
    "data.Dataset.map": _NUMPY,
    "data.Dataset.save": _FORMAT,
    "data.Dataset.scan": _NUMPY,
    "data.Dataset.shuffle": _ORDER,
    "data.experimental.load": _FORMAT,
    "data.experimental.save": _FORMAT,
    "distribute.HierarchicalCopyAllReduce": _XLA,
    "distribute.NcclAllReduce": _XLA,
    "distribute.ReductionToOneDevice": _XLA,
    "distribute.TPUStrategy": _TPU,
    "distribute.cluster_resolver.TPUClusterResolver": _TPU,
    "distribute.experimental.PreemptionCheckpointHandler": (
        "The count of runs is a plain number, not a variable, and the exit code is 42 "
        "on every platform."
    ),
    "distribute.experimental.TPUStrategy": _TPU,
    "estimator.EstimatorSpec": (
        "train_op is the result of unisono.estimator.minimize, or a function."
    ),
    "keras.callbacks.BackupAndRestore": (
        "It resumes in the middle of an epoch, and has no save_before_preemption."
    ),
    "metrics.Mean": (
        "It is a class of unisono; the metric of Keras is tf.keras.metrics.Mean."
    ),
    "optimizers.Optimizer": "It takes an Optax transformation and the variables.",
    "random.Generator.make_seeds": (
        "Unless JAX's 64-bit types are enabled, it returns the 32-bit halves of "
        "TensorFlow's seeds."
    ),
    "random.Generator.uniform_full_int": (
        "The default type is uint32 unless JAX's 64-bit types are enabled."
    ),
    "compat.v1.train.get_global_step": _STEP,
    "compat.v1.train.get_or_create_global_step": _STEP,
    "train.get_global_step": _STEP,
    "train.get_or_create_global_step": _STEP,
    "saved_model.load": _SAVED,
    "saved_model.save": _SAVED,
    "summary.scalar": (
        "If a compiled function writes it, each call waits until the function has run."
    ),
    "tpu.experimental.initialize_tpu_system": _TPU,
    "train.Checkpoint.read": _FORMAT,
    "train.Checkpoint.restore": _FORMAT,
    "train.ExponentialMovingAverage": "`apply` needs a list of variables.",
    "train.latest_checkpoint": "Damaged checkpoints are skipped, with a warning.",
    "train.load_checkpoint": _FORMAT,
}

# Names under which TensorFlow is imported.
PACKAGES = ("tensorflow", "unisono")

_IN_KERAS = (
    "`{}` on an array is converted where a unisono.function calls the layer; in `fit` "
    "it is an error that says what to write."
)

# Statements and operators of Python on arrays, and orders of lines -> the status and
# what to tell. `if`, `while`, `for` and `assert` in a function are noticed, too. They
# have no row, because they are converted, and so run as they are.
FORMS = {
    "keras first": (
        "missing",
        "Put `import unisono as tf` above this line: Keras chooses JAX or TensorFlow "
        "when it is imported, and unisono tells it JAX.",
    ),
    "shape and list": (
        "missing",
        "The shape of an array is a tuple, which a list cannot be added to. Write "
        "list(x.shape) + [...].",
    ),
    "loop in a tape": (
        "missing",
        "A gradient goes only through loops with a limit. Write "
        "tf.autograph.experimental.set_loop_options(maximum_iterations=n) as the first "
        "statement of the loop.",
    ),
    **{
        f"{form} in Keras": ("differs", _IN_KERAS.format(form))
        for form in ("if", "while", "for", "assert")
    },
}

TAKEN_FOR_TENSORFLOW = (
    "Its uses are judged as if it were TensorFlow. Give the path of the file that it "
    "comes from, too."
)

# Functions whose values are known while a function is compiled.
KNOWN_SIZES = ("rank", "shape", "size")

# Members of arrays that are objects of Python's or NumPy's classes.
NUMPY_MEMBERS = ("Tensor.dtype", "Tensor.shape")

# Members of TensorFlow's shapes that tuples have not -> what to write.
SHAPE_GONE = {
    "as_list": "Write x.get_shape().as_list(), or list(x.shape).",
    "dims": "Write x.shape: its entries are numbers.",
    "is_fully_defined": "The shape of an array is always known. Leave it out.",
    "ndims": "Write x.ndim.",
    "num_elements": "Write x.size.",
    "rank": "Write x.ndim.",
}
SHAPE_MEMBER = "The shape of an array is a tuple. Write x.get_shape() for TensorFlow's."

# Members of TensorFlow's types that NumPy's have not -> what to write.
TYPE_GONE = {
    "as_datatype_enum": "Write its name.",
    "as_numpy_dtype": "The type is NumPy's already. Leave it out.",
    "base_dtype": "Leave it out.",
    "is_bool": 'Write t == "bool".',
    "is_complex": "Write jax.numpy.issubdtype(t, jax.numpy.complexfloating).",
    "is_floating": "Write jax.numpy.issubdtype(t, jax.numpy.floating).",
    "is_integer": "Write jax.numpy.issubdtype(t, jax.numpy.integer).",
    "limits": "Write numpy.iinfo(t).min and .max.",
    "max": "Write jax.numpy.finfo(t).max, or iinfo for integers.",
    "min": "Write jax.numpy.finfo(t).min, or iinfo for integers.",
    "size": "Write t.itemsize.",
}
TYPE_MEMBER = "Element types are NumPy's, which have no such member."

# Members of Keras 2's objects that Keras 3 has not -> what to write.
KERAS_GONE = {
    "Layer.add_metric": "Call a metric's update_state in train_step, and list it in "
    "the model's `metrics`.",
    "Layer.add_update": "Assign the variable.",
    "Layer.get_losses_for": "Use `losses`.",
    "Layer.get_updates_for": "Assign the variables in `call`.",
    "Layer.inbound_nodes": "Use `input` and `output`.",
    "Layer.updates": "Assign the variables in `call`.",
    "LossScaleOptimizer.get_scaled_loss": "Write scale_loss(loss).",
    "LossScaleOptimizer.get_unscaled_gradients": "Leave it out.",
    "Model.evaluate_generator": "Write model.evaluate(generator).",
    "Model.fit_generator": "Write model.fit(generator).",
    "Model.predict_classes": "Write model.predict(x).argmax(-1).",
    "Model.predict_generator": "Write model.predict(generator).",
    "Model.predict_proba": "Write model.predict(x).",
    "Model.reset_states": "Call reset_state of the layers that have one.",
    "Model.state_updates": "Assign the variables in `call`.",
    "Optimizer._decayed_lr": "Use `learning_rate`.",
    "Optimizer.get_config_from": "Use `from_config`.",
    "Optimizer.get_gradients": "Use tape.gradient.",
    "Optimizer.get_updates": "Use apply_gradients.",
    "Optimizer.get_weights": "Write [v.numpy() for v in optimizer.variables].",
    "Optimizer.set_weights": "Assign optimizer.variables one by one.",
    "Optimizer.weights": "Use `variables`.",
}

KERAS_WEIGHTS = "The file gets the ending .weights.h5, and a warning says so."
KERAS_FOLDER = (
    "It writes a directory of Keras' own format, which TensorFlow cannot load."
)
KERAS_ENDING = 'Give the path the ending ".keras".'
KERAS_NAME_FIRST = "The name comes first, as in Keras 2; it is taken, with a warning."

# Arguments of Keras 2 that unisono takes, by class or method -> what happens.
KERAS_TAKEN = {
    "Optimizer": {"lr": "It is used as learning_rate=, with a warning."},
    "Optimizer.apply_gradients": {
        "experimental_aggregate_gradients": (
            "With False every replica applies its own gradients, which must be equal."
        ),
        "name": "The name has no effect.",
        "skip_gradients_aggregation": (
            "With True every replica applies its own gradients, which must be equal."
        ),
    },
    "Model.save_weights": {
        "options": "The options have no effect.",
        "save_format": KERAS_WEIGHTS,
    },
    "Trainer.compile": {"per_replica": "It is an addition of unisono."},
    "ModelCheckpoint": {"options": "The options have no effect."},
}

# Functions of Keras that return a model.
KERAS_MODELS = frozenset(
    {
        "keras.models.clone_model",
        "keras.models.load_model",
        "keras.models.model_from_json",
        "keras.saving.load_model",
    }
)

# Members that are Keras 2's, and work here because unisono adds them -> a sentence.
KERAS_KEPT = {
    "Metric.reset_states": "Keras 3 calls it reset_state; the old name works, too.",
    "Model.compiled_loss": "Keras 3 does not have it; unisono adds it.",
    "Model.compiled_metrics": "Keras 3 does not have it; unisono adds it.",
    "Model.save_spec": "Keras 3 does not have it; unisono adds it.",
    "Optimizer.lr": "Keras 3 calls it learning_rate; the old name works, too.",
    "Optimizer.minimize": "Keras 3 does not have it; unisono adds it.",
}

# Arguments of Keras 2 that Keras 3's classes do not take -> what to write.
KERAS_ARGUMENTS = {
    "decay": "Use a schedule: keras.optimizers.schedules.InverseTimeDecay.",
    "period": 'Use save_freq="epoch".',
    "epsilon": "Write min_delta=.",
    "embeddings_regularizer_rate": "Write embeddings_regularizer=.",
    "batch_input_shape": "Write keras.Input(batch_shape=...) as the first layer.",
    "experimental_run_tf_function": "Leave it out.",
    "experimental_steps_per_execution": "Write steps_per_execution=.",
    "workers": "Pass it to the keras.utils.PyDataset.",
    "use_multiprocessing": "Pass it to the keras.utils.PyDataset.",
    "max_queue_size": "Pass it to the keras.utils.PyDataset.",
    "save_format": 'Give the path the ending ".keras".',
    "options": "Leave it out.",
    "signatures": "Use unisono.saved_model.save.",
    "sample_weight_mode": "Leave it out.",
    "interpolation_order": "Use interpolation=.",
    "implementation": "Leave it out.",
    "time_major": "Transpose the first two axes.",
    "normalize": "Leave it out.",
}

# Packages beside TensorFlow -> what to know about them.
OTHER_PACKAGES = {
    "tensorflow_addons": "It needs TensorFlow. Keras 3 and optax have most of it.",
    "tensorflow_datasets": (
        "tfds.load needs TensorFlow. Use tfds.data_source(name, split=...), whose "
        "elements are NumPy arrays, with unisono.data.Dataset.from_generator."
    ),
    "tensorflow_hub": "It needs TensorFlow. Use keras_hub or flax models.",
    "tensorflow_probability": (
        "Use tensorflow_probability.substrates.jax, which does not need TensorFlow."
    ),
    "tensorflow_text": "It needs TensorFlow. Use keras_hub's tokenizers on the host.",
    "tensorflow_io": "It needs TensorFlow. Use the formats' own packages.",
    "tensorflow_model_optimization": "It needs TensorFlow. Use qwix.",
    "tensorflow_estimator": "Use unisono.estimator.",
    "tensorflow_federated": "It needs TensorFlow.",
    "tensorflow_transform": "It needs TensorFlow.",
    "tensorflow_recommenders": "It needs TensorFlow. Use keras_rs.",
    "tf_keras": "It is Keras 2, and needs TensorFlow. Use unisono.keras.",
    "tf_slim": "It needs TensorFlow. Use Keras.",
}
