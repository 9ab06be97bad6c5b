"""Replacements for single names whose family's row says too little."""

from __future__ import annotations

_SERVING = "Pass signatures= to saved_model.save, a dict of names and functions."
_STORED = (
    "unisono.saved_model.save writes folders with another layout. Use "
    "unisono.saved_model.contains_saved_model to recognise one."
)
_TAGS = "Leave it out: exported models have no tags."
_EARLY = (
    "Write a unisono.estimator.SessionRunHook whose after_run calls "
    "run_context.request_stop()."
)
_HOOK = "Write a unisono.estimator.SessionRunHook, or do it in the model_fn."
_CANNED = (
    "Write the model as a model_fn for unisono.estimator.Estimator, or use "
    "unisono.keras."
)
_HEAD = "Compute the loss and the metrics in the model_fn, and return an EstimatorSpec."
_MADE_OF = "Use a dict or list of arrays, or jax.tree_util.register_dataclass."
_DISPATCH = "Write a function that checks the type of its argument."
_FUNCTIONS = "Use collections.abc.Callable: a unisono.function is callable."
_VALUES = "Use unisono.distribute.DistributedValues."
_WORK = "Leave it out: devices are ordered as with AUTO."
_LOGICAL = (
    "Leave it out: a worker uses only the devices of its machine, and "
    "unisono.distribute.MultiWorkerMirroredStrategy connects the workers."
)
_RAGGED_BATCH = "Use dataset.padded_batch(n), and keep the lengths of the rows."
_TABLE = (
    "Use unisono.lookup.StaticHashTable with the keys and values of "
    "dataset.as_numpy_iterator()."
)
_GONE_FORMAT = "Keep the dataset itself in a Python variable."
_UNICODE = "Use {} in Dataset.map."

INSTEAD = {
    # Python and settings.
    "autograph.to_code": "Use inspect.getsource(function).",
    "autograph.to_graph": (
        "Decorate the function with unisono.function, which converts it."
    ),
    "autograph.trace": "Use Python's print: it runs while the function is traced.",
    "compat.bytes_or_text_types": "Use (bytes, str).",
    "compat.complex_types": "Use numbers.Complex.",
    "compat.dimension_at_index": "Use shape[index].",
    "compat.forward_compatibility_horizon": "Leave it out.",
    "compat.forward_compatible": "Use True.",
    "compat.integral_types": "Use numbers.Integral.",
    "compat.real_types": "Use numbers.Real.",
    "config.experimental_connect_to_host": (
        "Start a worker on that host with unisono launch, and use "
        "unisono.distribute.MultiWorkerMirroredStrategy."
    ),
    "config.experimental.ClusterDeviceFilters": _LOGICAL,
    "config.experimental.disable_mlir_bridge": "Leave it out.",
    "config.experimental.enable_mlir_bridge": "Leave it out.",
    "config.experimental.get_device_policy": "Leave it out: JAX moves arrays.",
    "config.experimental.reset_memory_stats": (
        "Take the difference of two results of "
        "unisono.config.experimental.get_memory_info."
    ),
    "config.experimental.set_device_policy": "Leave it out: JAX moves arrays.",
    # Input.
    "data.IteratorSpec": "Use the attribute element_spec of the iterator.",
    "data.experimental.DatasetInitializer": _TABLE,
    "data.experimental.RandomDataset": "Use unisono.data.Dataset.random(seed=seed).",
    "data.experimental.Reducer": "Use dataset.reduce(initial_state, function).",
    "data.experimental.ServiceOptions": "Leave it out: there is no data service.",
    "data.experimental.at": "Use next(iter(dataset.skip(index))).",
    "data.experimental.dense_to_ragged_batch": _RAGGED_BATCH,
    "data.experimental.dense_to_sparse_batch": _RAGGED_BATCH,
    "data.experimental.distributed_save": "Use dataset.save(path) in each worker.",
    "data.experimental.from_variant": _GONE_FORMAT,
    "data.experimental.get_model_proto": "Use unisono.profiler.experimental.start.",
    "data.experimental.group_by_reducer": (
        "Use dataset.group_by_window, or reduce with a dict in Python."
    ),
    "data.experimental.index_table_from_dataset": _TABLE,
    "data.experimental.make_saveable_from_iterator": (
        "Use unisono.train.Checkpoint(iterator=iterator)."
    ),
    "data.experimental.pad_to_cardinality": (
        "Use dataset.concatenate(padding) with a mask in each element."
    ),
    "data.experimental.table_from_dataset": _TABLE,
    "data.experimental.to_variant": _GONE_FORMAT,
    "dtypes.QUANTIZED_DTYPES": "Use a tuple of types such as numpy.int8.",
    "dtypes.resource": "Leave it out: variables are objects.",
    "dtypes.variant": "Leave it out.",
    # Estimators.
    **{
        f"estimator.{name}": _CANNED
        for name in (
            "BaselineClassifier",
            "BaselineEstimator",
            "BaselineRegressor",
            "DNNClassifier",
            "DNNEstimator",
            "DNNLinearCombinedClassifier",
            "DNNLinearCombinedEstimator",
            "DNNLinearCombinedRegressor",
            "DNNRegressor",
            "LinearClassifier",
            "LinearEstimator",
            "LinearRegressor",
        )
    },
    **{
        f"estimator.{name}": _HEAD
        for name in (
            "BinaryClassHead",
            "Head",
            "LogisticRegressionHead",
            "MultiClassHead",
            "MultiHead",
            "MultiLabelHead",
            "PoissonRegressionHead",
            "RegressionHead",
            "add_metrics",
        )
    },
    **{
        f"estimator.{name}": _HOOK
        for name in (
            "FeedFnHook",
            "FinalOpsHook",
            "GlobalStepWaiterHook",
            "LoggingTensorHook",
            "SecondOrStepTimer",
            "SessionRunArgs",
            "StepCounterHook",
        )
    },
    **{
        f"estimator.experimental.{name}": _EARLY
        for name in (
            "make_early_stopping_hook",
            "make_stop_at_checkpoint_step_hook",
            "stop_if_higher_hook",
            "stop_if_lower_hook",
            "stop_if_no_decrease_hook",
            "stop_if_no_increase_hook",
        )
    },
    "estimator.BestExporter": (
        "Use unisono.estimator.LatestExporter, and compare the metrics yourself."
    ),
    "estimator.CheckpointSaverHook": (
        "Use unisono.estimator.RunConfig(save_checkpoints_steps=n)."
    ),
    "estimator.ProfilerHook": "Use unisono.profiler.experimental.start and stop.",
    "estimator.SummarySaverHook": (
        "Use unisono.estimator.RunConfig(save_summary_steps=n), which writes the loss."
    ),
    "estimator.VocabInfo": "Restore what you need with unisono.train.Checkpoint.",
    "estimator.WarmStartSettings": (
        "Restore what you need with unisono.train.Checkpoint in the model_fn."
    ),
    "estimator.export.TensorServingInputReceiver": (
        "Use unisono.estimator.export.ServingInputReceiver."
    ),
    "estimator.export.build_parsing_serving_input_receiver_fn": (
        "Use unisono.estimator.export.build_raw_serving_input_receiver_fn, and parse "
        "records before the call."
    ),
    # Trials.
    "experimental.BatchableExtensionType": (
        "Use a dataclass with jax.tree_util.register_dataclass."
    ),
    "experimental.DynamicRaggedShape": "Keep the lengths of the rows in an array.",
    "experimental.ExtensionTypeBatchEncoder": (
        "Use a dataclass with jax.tree_util.register_dataclass."
    ),
    "experimental.ExtensionTypeSpec": _MADE_OF,
    "experimental.RowPartition": "Keep the lengths of the rows in an array.",
    "experimental.StructuredTensor": _MADE_OF,
    "experimental.dispatch_for_api": _DISPATCH,
    "experimental.dispatch_for_binary_elementwise_apis": _DISPATCH,
    "experimental.dispatch_for_binary_elementwise_assert_apis": _DISPATCH,
    "experimental.dispatch_for_unary_elementwise_apis": _DISPATCH,
    "experimental.unregister_dispatch_for": "Leave it out.",
    "experimental.enable_strict_mode": (
        'Use jax.config.update("jax_numpy_dtype_promotion", "strict").'
    ),
    "experimental.extension_type": "Use dataclasses.asdict.",
    "experimental.function_executor_type": "Leave it out.",
    "experimental.register_filesystem_plugin": (
        "Use fsspec or the store's own package to open files."
    ),
    "experimental.tensorrt": (
        "There is no replacement: unisono.saved_model.save stores StableHLO, which "
        "TensorRT does not read."
    ),
    # Exported models.
    **{
        f"saved_model.{name}": _STORED
        for name in (
            "ASSETS_DIRECTORY",
            "DEBUG_DIRECTORY",
            "DEBUG_INFO_FILENAME_PB",
            "SAVED_MODEL_FILENAME_PB",
            "SAVED_MODEL_FILENAME_PBTXT",
            "SAVED_MODEL_SCHEMA_VERSION",
            "VARIABLES_DIRECTORY",
            "VARIABLES_FILENAME",
        )
    },
    **{
        f"saved_model.{name}": _SERVING
        for name in (
            "CLASSIFY_INPUTS",
            "CLASSIFY_METHOD_NAME",
            "CLASSIFY_OUTPUT_CLASSES",
            "CLASSIFY_OUTPUT_SCORES",
            "PREDICT_INPUTS",
            "PREDICT_METHOD_NAME",
            "PREDICT_OUTPUTS",
            "REGRESS_INPUTS",
            "REGRESS_METHOD_NAME",
            "REGRESS_OUTPUTS",
        )
    },
    "saved_model.ASSETS_KEY": "Keep files beside the folder of the exported model.",
    "saved_model.Asset": "Keep files beside the folder of the exported model.",
    "saved_model.GPU": _TAGS,
    "saved_model.SERVING": _TAGS,
    "saved_model.TPU": _TAGS,
    "saved_model.TRAINING": _TAGS,
    # Text.
    "strings.format": "Use an f-string.",
    "strings.to_hash_bucket": "Use unisono.strings.to_hash_bucket_fast.",
    "strings.to_hash_bucket_strong": "Use unisono.strings.to_hash_bucket_fast.",
    "strings.unicode_decode": _UNICODE.format("[ord(c) for c in data.decode()]"),
    "strings.unicode_encode": _UNICODE.format('"".join(map(chr, codes)).encode()'),
    "strings.unicode_script": _UNICODE.format("unicodedata.name(c)"),
    "strings.unicode_split": _UNICODE.format("list(data.decode())"),
    "strings.unicode_transcode": _UNICODE.format("data.decode(a).encode(b)"),
    "summary.experimental.summary_scope": "Put the prefix into the name.",
    "summary.write": "Use unisono.summary.scalar, image, histogram, text or audio.",
    # Tests and types.
    "test.Benchmark": "Use timeit, with jax.block_until_ready on the result.",
    "test.assert_equal_graph_def": "Compare jax.make_jaxpr(function)(x).",
    "test.benchmark_config": "Use timeit, with jax.block_until_ready on the result.",
    "test.compute_gradient": "Use jax.test_util.check_grads(function, (x,), order=1).",
    "test.create_local_cluster": ("Start workers with unisono launch -n 2 program.py."),
    "test.is_built_with_rocm": (
        'Use "rocm" in jax.devices()[0].client.platform_version.'
    ),
    "test.is_built_with_xla": "Use True: XLA compiles everything.",
    "test.is_cpu_target_available": "Use True.",
    "test.experimental": "Use jax.block_until_ready(x).",
    "tpu.experimental.DeviceOrderMode": _WORK,
    "tpu.experimental.HardwareFeature": "Use jax.devices()[0].device_kind.",
    "train.CheckpointView": "Use unisono.train.load_checkpoint(path).",
    "train.ClusterDef": "Use unisono.train.ClusterSpec.",
    "train.JobDef": "Use unisono.train.ClusterSpec.",
    "train.ServerDef": "Use unisono.train.ClusterSpec.",
    "train.TrackableView": "Use unisono.train.list_variables(path).",
    "train.experimental": (
        "Leave it out: unisono.train.Checkpoint has another file format."
    ),
    "train.experimental.PythonState": (
        "Keep the state in a unisono.Variable, which unisono.train.Checkpoint saves."
    ),
    "types.experimental.Callable": _FUNCTIONS,
    "types.experimental.ConcreteFunction": _FUNCTIONS,
    "types.experimental.FunctionType": "Use inspect.signature(function).",
    "types.experimental.GenericFunction": _FUNCTIONS,
    "types.experimental.PolymorphicFunction": _FUNCTIONS,
    "types.experimental.AtomicFunction": _FUNCTIONS,
    "types.experimental.distributed": _VALUES,
    "version.GIT_VERSION": "Use unisono.__version__.",
    "version.VERSION": "Use unisono.__version__.",
}

# Members of classes that are here without them -> what to write.
MEMBERS = {
    "Tensor.backing_device": "Use `sharding`.",
    "Tensor.consumers": "There are no graphs.",
    "Tensor.cpu": "Use jax.device_put.",
    "Tensor.eval": "Write x.numpy().",
    "Tensor.experimental_ref": "Use id(x).",
    "Tensor.gpu": "Use jax.device_put.",
    "Tensor.graph": "There are no graphs.",
    "Tensor.name": "Arrays have no names.",
    "Tensor.op": "There are no graphs.",
    "Tensor.ref": "Use id(x).",
    "TensorArray.flow": "Pass the TensorArray itself.",
    "TensorArray.grad": "Use unisono.GradientTape.",
    "TensorArray.handle": "Pass the TensorArray itself.",
    "Variable.batch_scatter_update": "Use `scatter_nd_update`.",
    "Variable.count_up_to": "Count in Python.",
    "Variable.eval": "Write v.numpy().",
    "Variable.from_proto": "Use train.Checkpoint.",
    "Variable.to_proto": "Use train.Checkpoint.",
    "compat.v1.ConfigProto.gpu_options": (
        "Write tf.config.experimental.set_memory_growth(gpu, True) for allow_growth."
    ),
    "data.Dataset.snapshot": "Use cache(filename), or save and load.",
    "data.Dataset.sparse_batch": "Sparse tensors are not here; use padded_batch.",
    "data.Dataset.ragged_batch": "Ragged tensors are not here; use padded_batch.",
}
