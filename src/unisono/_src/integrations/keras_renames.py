"""Tables of the names of ``tf.keras`` that Keras 3 does not have.

All paths are without ``tf.keras.``. Keras itself is not imported here.
"""

_OWN = "unisono._src.integrations.keras"

# Names that are unisono's own: the module that defines each of them.
OWN = {
    "callbacks.BackupAndRestore": f"{_OWN}.backup",
    "callbacks.TensorBoard": f"{_OWN}.tensorboard",
    "losses.Reduction": f"{_OWN}.former_names",
    "models.load_model": f"{_OWN}.former_names",
    "models.save_model": f"{_OWN}.former_names",
    "preprocessing.image_dataset_from_directory": f"{_OWN}.directories",
    "preprocessing.text_dataset_from_directory": f"{_OWN}.directories",
    "preprocessing.timeseries_dataset_from_array": f"{_OWN}.time_series",
    "saving.load_model": f"{_OWN}.former_names",
    "saving.save_model": f"{_OWN}.former_names",
    "utils.experimental.DatasetCreator": f"{_OWN}.dataset_creator",
    "utils.image_dataset_from_directory": f"{_OWN}.directories",
    "utils.split_dataset": f"{_OWN}.dataset_splits",
    "utils.text_dataset_from_directory": f"{_OWN}.directories",
    "utils.timeseries_dataset_from_array": f"{_OWN}.time_series",
}

# Namespaces of TensorFlow whose names Keras 3 has elsewhere.
MOVED = {
    "experimental": "optimizers.schedules",
    "layers.experimental": "layers",
    "layers.experimental.preprocessing": "layers",
    "optimizers.experimental": "optimizers",
    "optimizers.legacy": "optimizers",
    "utils.experimental": "utils",
}

# Functions of `tf.keras.backend` that `keras.ops` has under the same name, with the
# same arguments in the same places and the same results.
OPERATIONS = frozenset(
    (
        "abs", "all", "any", "cast", "clip", "cos", "equal", "exp", "greater",
        "greater_equal", "less", "less_equal", "log", "max", "maximum", "mean", "min",
        "minimum", "not_equal", "one_hot", "ones_like", "prod", "reshape", "round",
        "sigmoid", "sign", "sin", "softmax", "softplus", "softsign", "sqrt", "square",
        "squeeze", "stack", "std", "stop_gradient", "sum", "tanh", "tile",
        "transpose", "var", "zeros_like",
    )
)  # fmt: skip

_STRINGS = (
    "Keras computes it with TensorFlow, because JAX has no strings. Look words up in "
    "the input pipeline: dataset.map(lambda text: table.lookup(unisono.strings.split("
    "unisono.strings.lower(text)))), where table is a unisono.lookup.StaticHashTable "
    "or StaticVocabularyTable of the words."
)
_INTEGERS = (
    "Keras computes it with TensorFlow. Look numbers up in the input pipeline: "
    "dataset.map(table.lookup), where table is a unisono.lookup.StaticHashTable of the "
    "numbers."
)

_HASHES = (
    "Keras computes it with TensorFlow. Hash texts in the input pipeline: "
    "dataset.map(lambda x: unisono.strings.to_hash_bucket_fast(x, num_bins)); write "
    "unisono.strings.as_string(x) for numbers. The bins are those of Keras without "
    "`salt` and `mask_value`."
)
_CROSSES = (
    "Keras computes it with TensorFlow. Hash joined texts in the input pipeline: "
    "dataset.map(lambda a, b: unisono.strings.to_hash_bucket_fast("
    'unisono.strings.join([a, b], "_"), num_bins)). The bins are others than those of '
    "Keras."
)
_SOUNDS = (
    "Keras reads sounds with TensorFlow. Read them in the input pipeline: list the "
    'files with unisono.data.Dataset.list_files("sounds/*/*.wav"), and read them in '
    "map with unisono.numpy_function and Python's module wave."
)
_FEATURES = (
    "Keras computes it with TensorFlow. Prepare the columns in the input pipeline: "
    "look words up in a unisono.lookup.StaticHashTable in map, and put "
    "layers.Normalization, Discretization and CategoryEncoding into the model."
)

_EXPORTS = (
    "Keras writes TensorFlow's format with TensorFlow. Use unisono.saved_model.save, "
    "which writes StableHLO."
)

_PHASE = "Pass training=True or False when you call the model."

# Names that are nowhere, and what to write instead.
TOLD = {
    "__internal__": "It is not public. Use the public names of unisono.keras.",
    "backend.function": "Call the model, or put unisono.function on a Python function.",
    "backend.get_session": "There are no sessions. Call functions instead.",
    "backend.get_value": "Write x.numpy().",
    "backend.gradients": "Use unisono.GradientTape.",
    "backend.int_shape": "Write x.shape.",
    "backend.learning_phase": _PHASE,
    "backend.ndim": "Write x.ndim.",
    "backend.ones": "Write unisono.Variable(jnp.ones(shape)).",
    "backend.set_learning_phase": _PHASE,
    "backend.set_session": "There are no sessions. Call functions instead.",
    "backend.set_value": "Write x.assign(value).",
    "backend.variable": "Write unisono.Variable(value).",
    "backend.zeros": "Write unisono.Variable(jnp.zeros(shape)).",
    "estimator": "Write a model_fn for unisono.estimator.Estimator, or use model.fit.",
    "experimental.LinearModel": "Use Sequential([layers.Dense(units)]).",
    "experimental.SidecarEvaluator": (
        "Evaluate in a loop over unisono.train.checkpoints_iterator(directory)."
    ),
    "experimental.WideDeepModel": "Build both parts with layers, and add them.",
    "export.ExportArchive": _EXPORTS,
    "layers.CuDNNGRU": "Write layers.GRU.",
    "layers.CuDNNLSTM": "Write layers.LSTM.",
    "layers.DenseFeatures": "Use layers.Normalization, Discretization and Embedding.",
    "layers.HashedCrossing": _CROSSES,
    "layers.Hashing": _HASHES,
    "layers.IntegerLookup": _INTEGERS,
    "layers.StringLookup": _STRINGS,
    "layers.TextVectorization": _STRINGS,
    "layers.experimental.SyncBatchNormalization": "Write "
    "layers.BatchNormalization(synchronized=True).",
    "mixed_precision.experimental": "Leave out `experimental.`; set_policy is "
    "mixed_precision.set_global_policy.",
    "premade": "Build the model with layers.",
    "utils.FeatureSpace": _FEATURES,
    "utils.audio_dataset_from_directory": _SOUNDS,
    "utils.multi_gpu_model": "Make the model in the scope of a strategy.",
    "utils.np_utils": "Write utils.to_categorical.",
    "wrappers.scikit_learn": "Use SKLearnClassifier and SKLearnRegressor of wrappers.",
}  # fmt: skip

# Those of the names above that work as soon as TensorFlow is installed.
NEEDS_TENSORFLOW = frozenset(
    (
        "export.ExportArchive", "layers.HashedCrossing", "layers.Hashing",
        "layers.IntegerLookup", "layers.StringLookup", "layers.TextVectorization",
        "utils.FeatureSpace", "utils.audio_dataset_from_directory",
    )
)  # fmt: skip
