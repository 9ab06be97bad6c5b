"""Writes the list of TensorFlow's public names that the package ships.

Run it with a Python that has TensorFlow, from the root of the repository:
``python -m tests.parity.tensorflow_names``. A line of the list is the path of a module
or class, what the names below it are, and these names. Whatever is below the modules
of the line ``*`` is TensorFlow's, and not listed.
"""

import collections
import importlib
import inspect
import pathlib

LIST = (
    pathlib.Path(__file__).parents[2]
    / "src/unisono/_src/foundation/tensorflow_names/names.txt"
)

# Their names are not listed: everything that begins so is TensorFlow's.
BY_PREFIX = (
    "compat.v1", "compat.v2", "contrib", "keras", "lite", "mlir", "raw_ops",
)  # fmt: skip

# Keras' modules, which TensorFlow also has at its top.
FROM_KERAS = ("initializers", "losses", "metrics", "optimizers")

# A module that TensorFlow loads in another way.
ELSEWHERE = {"experimental": "tensorflow._api.v2.experimental"}

# What earlier versions had.
EARLIER = """
. modules contrib estimator
estimator classes BaselineClassifier BaselineEstimator BaselineRegressor BestExporter
estimator classes BinaryClassHead CheckpointSaverHook CheckpointSaverListener
estimator classes DNNClassifier DNNEstimator DNNLinearCombinedClassifier
estimator classes DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor
estimator classes Estimator EstimatorSpec EvalSpec Exporter FeedFnHook FinalExporter
estimator classes FinalOpsHook GlobalStepWaiterHook Head LatestExporter LinearClassifier
estimator classes LinearEstimator LinearRegressor LoggingTensorHook MultiClassHead
estimator classes LogisticRegressionHead ModeKeys MultiHead MultiLabelHead NanTensorHook
estimator classes NanLossDuringTrainingError PoissonRegressionHead ProfilerHook
estimator classes RegressionHead RunConfig SecondOrStepTimer SessionRunArgs
estimator classes SessionRunContext SessionRunHook SessionRunValues StepCounterHook
estimator classes StopAtStepHook SummarySaverHook TrainSpec VocabInfo WarmStartSettings
estimator functions add_metrics classifier_parse_example_spec
estimator functions regressor_parse_example_spec train_and_evaluate
estimator modules experimental export
estimator.experimental classes InMemoryEvaluatorHook KMeans LinearSDCA RNNClassifier
estimator.experimental classes RNNEstimator
estimator.experimental functions build_raw_supervised_input_receiver_fn
estimator.experimental functions call_logit_fn make_early_stopping_hook
estimator.experimental functions make_stop_at_checkpoint_step_hook
estimator.experimental functions stop_if_higher_hook stop_if_lower_hook
estimator.experimental functions stop_if_no_decrease_hook stop_if_no_increase_hook
estimator.export classes ClassificationOutput EvalOutput ExportOutput PredictOutput
estimator.export classes RegressionOutput ServingInputReceiver
estimator.export classes TensorServingInputReceiver
estimator.export functions build_parsing_serving_input_receiver_fn
estimator.export functions build_raw_serving_input_receiver_fn
"""

# Classes whose members nobody calls by name, or has a list of elsewhere.
WITHOUT_MEMBERS = ("errors.", "dtypes.", "feature_column.", "quantization.", "test.")


def main():
    """Writes the list, and says how long it is."""
    import tensorflow as tf

    found = _Names()
    found.walk(tf, "")
    for path in FROM_KERAS:
        found.add_module(getattr(tf.keras, path), path)
    for path, module in ELSEWHERE.items():
        found.add_module(importlib.import_module(module), path)
    for line in EARLIER.strip().splitlines():
        path, kind, *names = line.split()
        found.names[path.removeprefix("."), kind] |= set(names)
    tensor = type(tf.constant(0.0))  # The class of eager values has methods of its own.
    found.names["Tensor", "members"] |= {n for n in dir(tensor) if n[:1] != "_"}
    head = (
        f"# TensorFlow {tf.__version__}'s public names, written by "
        "tests/parity/tensorflow_names.py.\n"
        f"* modules {' '.join(BY_PREFIX)}\n"
    )
    LIST.write_text(head + found.render(), encoding="ascii")
    print(f"{LIST.name}: {LIST.stat().st_size} bytes")


class _Names:
    def __init__(self):
        self.names = collections.defaultdict(set)

    def walk(self, module, path):
        for name in dir(module):
            if not name.startswith("_"):
                self._add(getattr(module, name), name, path)

    def add_module(self, module, path):
        self.names["", "modules"].add(path)
        self.walk(module, path)

    def _add(self, value, name, path):
        whole = f"{path}.{name}" if path else name
        if inspect.ismodule(value) or whole in BY_PREFIX:
            ours = value.__name__.startswith(("tensorflow._api.v2", "tensorflow.keras"))
            if ours or whole in BY_PREFIX:
                self.names[path, "modules"].add(name)
                if whole not in BY_PREFIX:
                    self.walk(value, whole)
        elif inspect.isclass(value):
            self.names[path, "classes"].add(name)
            if not whole.startswith(WITHOUT_MEMBERS) and path not in FROM_KERAS:
                self._add_members(value, whole)
        else:
            kind = "functions" if callable(value) else "values"
            self.names[path, kind].add(name)

    def _add_members(self, cls, whole):
        is_message = hasattr(cls, "DESCRIPTOR")
        ignored = set(dir(Exception)) | set(dir(int)) | set(dir(tuple))
        if not is_message:
            members = {n for n in dir(cls) if n[:1] != "_" and n not in ignored}
            self.names[whole, "members"] |= members

    def render(self):
        lines = [
            f"{path or '.'} {kind} {' '.join(sorted(names))}\n"
            for (path, kind), names in sorted(self.names.items())
            if names
        ]
        return "".join(lines)


if __name__ == "__main__":
    main()
