"""The rows that name replacements for parts of TensorFlow that are not here.

They are for the errors that a missing name raises, for ``unisono check``, and for the
tables in ``docs/from-tensorflow/not-here.md``.
"""

from __future__ import annotations

import dataclasses
from typing import final

from unisono._src.foundation.tensorflow_names import (
    array_replacements,
    replacements,
    version_1,
)


@final
@dataclasses.dataclass(frozen=True)
class Family:
    """Holds the purpose of a part of TensorFlow, and its replacement.

    Attributes:
        path: a dotted path without ``tf.``; the row is for all that is below it, too.
        purpose: what the part is for, to go on from "a function for".
        instead: a sentence that says what to write.
    """

    path: str
    purpose: str
    instead: str


_GRAPHS = "There are no graphs: decorate the function with unisono.function."
_RAGGED = "Pad the rows to one length (Dataset.padded_batch), and keep their lengths."
_LOOKUPS = (
    "Pad the positions of each row to one length, look them up with "
    "unisono.nn.embedding_lookup, and sum with a mask."
)
_LISTS = (
    "Use unisono.io.VarLenFeature, which gives a dense array padded to the longest "
    "list."
)
_SPARSE = (
    "Use a dense array, jax.experimental.sparse.BCOO, or indices with jax.numpy.take."
)
_IMAGES = (
    "Use jax.image, keras.ops.image, or keras.layers such as RandomFlip, in "
    "Dataset.map or in the model."
)
_V1 = "Use the TensorFlow 2 name; there are no sessions, graphs or feeds."
_KERAS = "Install Keras with pip install 'unisono[keras]'."
_GPU = 'Use bool(unisono.config.list_physical_devices("GPU")).'
_TRACE = "Use unisono.profiler.experimental.start and stop."
_SPEECH = "Use jax.numpy.fft, jax.scipy.signal or keras.ops.stft."
_SERVICE = "Use grain for input workers, or Dataset.shard and Dataset.interleave."

# More names before fewer: the longest path that fits is taken.
ROWS = tuple(
    Family(*row)
    for row in (
        ("", "tensors", "Use jax.numpy, jax.lax or keras.ops."),
        ("AggregationMethod", "gradients", "Leave it out: XLA adds the gradients."),
        ("CriticalSection", "locks", "Use threading.Lock outside compiled functions."),
        ("Graph", "graphs", _GRAPHS),
        ("Operation", "graphs", _GRAPHS),
        ("RaggedTensor", "rows of different lengths", _RAGGED),
        ("RaggedTensorSpec", "rows of different lengths", _RAGGED),
        (
            "RegisterGradient",
            "gradients",
            "Use jax.custom_vjp.",
        ),
        ("SparseTensor", "sparse tensors", _SPARSE),
        ("SparseTensorSpec", "sparse tensors", _SPARSE),
        ("audio", "sound files", "Use Python's wave module in Dataset.map."),
        ("autodiff", "derivatives", "Use unisono.GradientTape, jax.jvp or jax.jacfwd."),
        (
            "autograph",
            "turning Python into graphs",
            "Use jax.lax.cond or jax.lax.while_loop where an array decides.",
        ),
        ("autograph.experimental", "turning Python into graphs", "Leave it out."),
        ("batch_to_space", "images", "Use reshape and transpose."),
        ("bitwise", "bits", "Use jax.numpy.bitwise_and and similar functions."),
        ("compat", "older programs", "Use Python 3's str, bytes and numbers."),
        ("compat.v1", "programs of TensorFlow 1", _V1),
        ("config", "devices and settings", "Use unisono.config or jax.config.update."),
        ("config.optimizer", "the compiler", "Leave it out: XLA compiles everything."),
        (
            "config.experimental.get_memory_usage",
            "devices and settings",
            "Use unisono.config.experimental.get_memory_info.",
        ),
        (
            "config.experimental.set_synchronous_execution",
            "devices and settings",
            "Leave it out: reading a result waits for it.",
        ),
        (
            "config.experimental.get_synchronous_execution",
            "devices and settings",
            "Leave it out: reading a result waits for it.",
        ),
        ("config.threading", "threads", "Set XLA_FLAGS or OMP_NUM_THREADS."),
        ("contrib", "programs of TensorFlow 1", _V1),
        ("data", "input", "Use the methods of unisono.data.Dataset."),
        ("data.experimental", "input", "Use the methods of unisono.data.Dataset."),
        (
            "data.experimental.enable_debug_mode",
            "input",
            (
                "Leave it out: the functions of a dataset run in Python, so a debugger "
                "can stop in them."
            ),
        ),
        (
            "data.experimental.from_list",
            "input",
            "Use unisono.data.Dataset.from_tensor_slices.",
        ),
        (
            "data.experimental.get_structure",
            "input",
            "Use the attribute element_spec of the dataset.",
        ),
        (
            "data.experimental.make_batched_features_dataset",
            "records",
            "Use unisono.data.TFRecordDataset, batch, and map with "
            "unisono.io.parse_example.",
        ),
        (
            "data.experimental.parse_example_dataset",
            "records",
            "Use dataset.map with unisono.io.parse_example.",
        ),
        (
            "data.experimental.map_and_batch",
            "input",
            "Use dataset.map(function).batch(n).",
        ),
        (
            "data.experimental.shuffle_and_repeat",
            "input",
            "Use dataset.shuffle(n).repeat().",
        ),
        (
            "data.experimental.copy_to_device",
            "input",
            "Use strategy.experimental_distribute_dataset: it puts batches on devices.",
        ),
        (
            "data.experimental.prefetch_to_device",
            "input",
            "Use strategy.experimental_distribute_dataset: it puts batches on devices.",
        ),
        ("data.experimental.service", "input on other machines", _SERVICE),
        ("data.experimental.SqlDataset", "databases", "Use Dataset.from_generator."),
        (
            "data.experimental.snapshot",
            "kept input",
            "Use Dataset.cache(filename), or Dataset.save and Dataset.load.",
        ),
        (
            "data.experimental.parallel_interleave",
            "input",
            "Use Dataset.interleave(..., num_parallel_calls=unisono.data.AUTOTUNE).",
        ),
        (
            "debugging",
            "checks",
            "Use assert outside compiled functions, or jax.experimental.checkify.",
        ),
        (
            "debugging.enable_check_numerics",
            "finding what is not a number",
            'Use jax.config.update("jax_debug_nans", True).',
        ),
        (
            "debugging.disable_check_numerics",
            "finding what is not a number",
            'Use jax.config.update("jax_debug_nans", False).',
        ),
        (
            "debugging.disable_traceback_filtering",
            "whole tracebacks",
            'Use jax.config.update("jax_traceback_filtering", "off").',
        ),
        (
            "debugging.enable_traceback_filtering",
            "short tracebacks",
            'Use jax.config.update("jax_traceback_filtering", "auto").',
        ),
        (
            "debugging.is_traceback_filtering_enabled",
            "short tracebacks",
            'Use jax.config.jax_traceback_filtering != "off".',
        ),
        ("debugging.experimental", "dumps", "Use jax.profiler or jax.debug.print."),
        ("distribute", "distribution", "Use a strategy of unisono.distribute."),
        ("distribute.experimental.rpc", "remote calls", "Use Python's xmlrpc or grpc."),
        ("dtypes", "types of numbers", "Use unisono's types, or numpy.dtype."),
        ("dtypes.cast", "types of numbers", "Use unisono.cast."),
        ("dtypes.complex", "types of numbers", "Use unisono.complex."),
        ("dtypes.saturate_cast", "types of numbers", "Use unisono.saturate_cast."),
        ("edit_distance", "text", "Compute it in Python on the host."),
        ("errors", "errors", "Catch Python's exceptions, or those of unisono.errors."),
        (
            "estimator",
            "estimators",
            "Use unisono.estimator.Estimator with a model function, or Keras.",
        ),
        ("experimental", "trials", "Use jax or keras.ops."),
        ("experimental.dlpack", "sharing arrays", "Use jax.dlpack."),
        (
            "experimental.dtensor",
            "arrays that are split over devices (DTensor)",
            "Use jax.sharding with jax.make_mesh, or TPUStrategy's logical devices.",
        ),
        ("experimental.numpy", "NumPy's functions", "Use jax.numpy."),
        ("experimental.numpy.random", "random numbers", "Use jax.random."),
        (
            "experimental.ExtensionType",
            "classes of tensors",
            "Use a dataclass with jax.tree_util.register_dataclass.",
        ),
        (
            "feature_column",
            "columns of tables",
            "Use keras.layers such as CategoryEncoding or Normalization.",
        ),
        ("gradients", "gradients", "Use unisono.GradientTape or unisono.grad."),
        ("graph_util", "graphs", _GRAPHS),
        ("hessians", "second derivatives", "Use jax.hessian."),
        ("image", "images", _IMAGES),
        ("import_graph_def", "graphs", _GRAPHS),
        ("initializers", "first values", "Use unisono.keras.initializers."),
        ("io", "files and records", "Use Python's own modules in Dataset.map."),
        ("io.matching_files", "files", "Use glob.glob."),
        ("io.RaggedFeature", "records", _LISTS),
        (
            "io.SparseFeature",
            "records",
            f"Read the indices and the values as two features. {_LISTS}",
        ),
        ("keras", "Keras", _KERAS),
        ("linalg", "linear algebra", "Use jax.numpy.linalg or jax.scipy.linalg."),
        (
            "lite",
            "small devices (LiteRT)",
            (
                "Export with unisono.saved_model.save; the LiteRT converter needs "
                "TensorFlow."
            ),
        ),
        ("load_library", "kernels", "Use jax.ffi."),
        ("load_op_library", "kernels", "Use jax.ffi."),
        (
            "lookup",
            "tables of words",
            "Use unisono.lookup.StaticHashTable, or a Python dict in Dataset.map.",
        ),
        ("losses", "losses", "Use unisono.keras.losses."),
        ("make_ndarray", "protocol buffers", "Use numpy.asarray."),
        ("make_tensor_proto", "protocol buffers", "Use numpy.save."),
        ("math", "mathematics", "Use jax.numpy, jax.scipy.special or jax.lax."),
        ("metrics", "metrics", "Use unisono.keras.metrics."),
        ("mlir", "the compiler", "Use jax.jit(function).lower(*args).as_text()."),
        ("nest", "nested structures", "Use jax.tree."),
        ("nn", "neural networks", "Use jax.nn, jax.lax, optax or keras.ops."),
        (
            "nn.ctc_loss",
            "neural networks",
            "Use optax.ctc_loss(logits, logit_paddings, labels, label_paddings).",
        ),
        (
            "nn.ctc_greedy_decoder",
            "neural networks",
            'Use keras.ops.ctc_decode(..., strategy="greedy").',
        ),
        (
            "nn.ctc_beam_search_decoder",
            "neural networks",
            'Use keras.ops.ctc_decode(..., strategy="beam_search").',
        ),
        ("nn.embedding_lookup_sparse", "sparse tensors", _LOOKUPS),
        ("nn.safe_embedding_lookup_sparse", "sparse tensors", _LOOKUPS),
        (
            "nn.sampled_softmax_loss",
            "neural networks",
            "Use the full softmax: optax.softmax_cross_entropy_with_integer_labels.",
        ),
        ("no_gradient", "gradients", "Use jax.lax.stop_gradient."),
        ("optimizers", "optimizers", "Use unisono.keras.optimizers or optax."),
        ("guarantee_const", "tensors", "Leave it out: it returns its argument."),
        ("identity_n", "tensors", "Use [unisono.identity(x) for x in inputs]."),
        ("shape_n", "tensors", "Use [unisono.shape(x) for x in inputs]."),
        ("tuple", "tensors", "Leave it out: statements run in order."),
        ("type_spec_from_value", "types", "Use unisono.TensorSpec(x.shape, x.dtype)."),
        ("parallel_stack", "arrays", "Use jax.numpy.stack."),
        ("profiler", "profiles", "Use unisono.profiler.experimental or jax.profiler."),
        ("quantization", "quantized numbers", "Use qwix, aqt or keras' quantize."),
        ("queue", "queues", "Use Python's queue outside compiled functions."),
        ("ragged", "rows of different lengths", _RAGGED),
        ("random", "random numbers", "Use jax.random or unisono.random.Generator."),
        (
            "raw_ops",
            "single operations of its graphs",
            (
                "Use the function for the same purpose, such as matmul for "
                "tf.raw_ops.MatMul."
            ),
        ),
        (
            "register_tensor_conversion_function",
            "classes of tensors",
            "Define the method __jax_array__ in the class.",
        ),
        ("resource", "handles", "Leave it out: variables are objects."),
        (
            "saved_model",
            "exported models",
            "Use unisono.saved_model.save and load, which store StableHLO programs.",
        ),
        (
            "sets",
            "sets",
            (
                "Use jax.numpy.intersect1d and similar functions outside compiled "
                "functions."
            ),
        ),
        ("signal", "signals", _SPEECH),
        ("sparse", "sparse tensors", _SPARSE),
        (
            "strings",
            "text",
            "Use the methods of Python's strings, or re, in Dataset.map.",
        ),
        (
            "summary",
            "TensorBoard",
            "Use unisono.summary.scalar, image, histogram, text or audio.",
        ),
        ("summary.trace_export", "TensorBoard", _TRACE),
        ("summary.trace_off", "TensorBoard", _TRACE),
        ("summary.trace_on", "TensorBoard", _TRACE),
        ("summary.graph", "TensorBoard", _GRAPHS),
        ("sysconfig", "building kernels", "Use jax.ffi."),
        ("test", "tests", "Use pytest and numpy.testing.assert_allclose."),
        ("test.TestCase", "tests", "Use unittest.TestCase and numpy.testing."),
        ("test.main", "tests", "Use unittest.main() or pytest."),
        ("test.gpu_device_name", "tests", 'Use "/GPU:0".'),
        ("test.is_built_with_cuda", "tests", _GPU),
        ("test.is_built_with_gpu_support", "tests", _GPU),
        ("test.is_gpu_available", "tests", _GPU),
        ("timestamp", "time", "Use time.time() outside compiled functions."),
        ("tpu", "TPUs", "Use unisono.distribute.TPUStrategy."),
        (
            "tpu.experimental.embedding",
            "tables of embeddings on TPUs",
            "Use keras.layers.Embedding with sharded state "
            "(docs/how-to/large-models.md).",
        ),
        ("train", "training", "Use unisono.train.Checkpoint, Keras or optax."),
        ("train.Coordinator", "threads", "Use concurrent.futures."),
        ("types", "types", "Use jax.typing.ArrayLike or jax.Array."),
        ("variant", "handles", "Leave it out."),
        ("version", "its version", "Use unisono.__version__ or jax.__version__."),
        ("xla", "the compiler", "Leave it out: XLA compiles every unisono.function."),
    )
)
_BY_PATH = {row.path: row for row in ROWS}


def find(path: str) -> Family:
    """Returns the row for a name: the one with the longest path that begins its own.

    >>> find("strings.unicode.split").purpose
    'text'
    """
    while path not in _BY_PATH:
        path = path.rpartition(".")[0]
    return _BY_PATH[path]


ROWS += tuple(
    Family(path, find(path).purpose, instead)
    for path, instead in (array_replacements.INSTEAD | replacements.INSTEAD).items()
)
ROWS += tuple(
    Family(f"compat.v1.{name}", "programs of TensorFlow 1", instead)
    for name, instead in version_1.INSTEAD.items()
)
_BY_PATH.update({row.path: row for row in ROWS})
