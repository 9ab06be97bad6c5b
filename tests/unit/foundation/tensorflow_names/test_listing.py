"""The list of TensorFlow's names is small, and tells what each name is."""

from unisono._src.foundation.tensorflow_names import listing


def test_the_list_takes_less_than_100_kb():
    assert listing._LIST.stat().st_size < 100_000


def test_each_name_is_what_tensorflow_has():
    kinds = {
        "strings": "module",
        "strings.split": "function",
        "distribute.MirroredStrategy": "class",
        "distribute.Strategy.run": "member",
        "Tensor.numpy": "member",
        "newaxis": "value",
        "compat.v1.Session": "name",
        "compat.v2.nn.relu": "function",
        "raw_ops.MatMul": "name",
        "estimator.DNNClassifier": "class",
        "losses.MeanSquaredError": "class",
        "nothing_of_the_kind": None,
        "strings.nothing_of_the_kind": None,
    }
    assert {path: listing.kind(path) for path in kinds} == kinds
