"""The functions of ``tf.data.experimental`` that say what methods of `Dataset` do."""

import inspect

import numpy as np
import pytest

import unisono as uni

D = uni.data.Dataset
E = uni.data.experimental

# As TensorFlow has them.
SIGNATURES = {
    "Counter": "start=0, step=1, dtype",
    "bucket_by_sequence_length": (
        "element_length_func, bucket_boundaries, bucket_batch_sizes, "
        "padded_shapes=None, padding_values=None, pad_to_bucket_boundary=False, "
        "no_padding=False, drop_remainder=False"
    ),
    "choose_from_datasets": "datasets, choice_dataset, stop_on_empty_dataset=False",
    "enumerate_dataset": "start=0",
    "get_next_as_optional": "iterator",
    "get_single_element": "dataset",
    "group_by_window": (
        "key_func, reduce_func, window_size=None, window_size_func=None"
    ),
    "ignore_errors": "log_warning=False",
    "load": "path, element_spec=None, compression=None, reader_func=None",
    "rejection_resample": "class_func, target_dist, initial_dist=None, seed=None",
    "sample_from_datasets": (
        "datasets, weights=None, seed=None, stop_on_empty_dataset=False"
    ),
    "save": "dataset, path, compression=None, shard_func=None, checkpoint_args=None",
    "scan": "initial_state, scan_func",
    "take_while": "predicate",
    "unbatch": "",
    "unique": "",
    "TFRecordWriter": "filename, compression_type=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_has_tensorflow_s_arguments(name):
    found = inspect.signature(getattr(E, name)).parameters.values()
    told = ", ".join(
        p.name if p.default is p.empty or p.name == "dtype" else f"{p.name}={p.default}"
        for p in found
    )
    assert told == SIGNATURES[name]


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_function_tells_its_name_and_what_it_does(name):
    found = getattr(E, name)
    assert found.__name__ == name
    assert found.__doc__.endswith(".") or "\n" in found.__doc__


def test_wrong_arguments_are_refused_where_they_are_written():
    with pytest.raises(TypeError, match="scan_func"):
        E.scan(np.int64(0))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="name"):
        E.Counter(name="numbers")


def numbers(dataset):
    return [np.asarray(x).tolist() for x in dataset]


def failing():
    def fail(x):
        if x == 1:
            raise ValueError("one")
        return x

    return D.range(3).map(fail)


APPLIED = {
    "bucket_by_sequence_length": lambda: (
        D.range(1, 5).map(lambda n: np.zeros(n, np.int64)),
        E.bucket_by_sequence_length(len, [3], [2, 2]),
        [[[0, 0], [0, 0]], [[0, 0, 0, 0], [0, 0, 0, 0]]],
    ),
    "enumerate_dataset": lambda: (
        D.range(5, 7),
        lambda d: d.apply(E.enumerate_dataset(3)).map(lambda i, x: i * 10 + x),
        [35, 46],
    ),
    "group_by_window": lambda: (
        D.range(4),
        E.group_by_window(lambda x: x % 2, lambda _, w: w.batch(2), 2),
        [[0, 2], [1, 3]],
    ),
    "ignore_errors": lambda: (failing(), E.ignore_errors(), [0, 2]),
    "rejection_resample": lambda: (
        D.range(4),
        lambda d: d.apply(
            E.rejection_resample(lambda x: x % 2, [0.5, 0.5], [0.5, 0.5])
        ).map(lambda _, x: x),
        [0, 1, 2, 3],
    ),
    "scan": lambda: (
        D.range(4),
        E.scan(np.int64(0), lambda s, x: (s + x, s + x)),
        [0, 1, 3, 6],
    ),
    "take_while": lambda: (D.range(9), E.take_while(lambda x: x < 2), [0, 1]),
    "unbatch": lambda: (D.range(3).batch(2), E.unbatch(), [0, 1, 2]),
    "unique": lambda: (D.range(2).repeat(2), E.unique(), [0, 1]),
}


@pytest.mark.parametrize("name", APPLIED)
def test_a_function_is_applied(name):
    dataset, function, want = APPLIED[name]()
    assert numbers(dataset.apply(function)) == want


def test_functions_of_datasets():
    assert numbers(E.Counter(3, 2).take(2)) == [3, 5]
    assert int(E.get_single_element(D.range(7, 8))) == 7
    a, b = D.range(2), D.range(10, 13)
    chosen = E.choose_from_datasets([a, b], D.from_tensor_slices([0, 0, 0, 1, 1]))
    assert numbers(chosen) == [0, 1, 10, 11]
    sampled = E.sample_from_datasets([a, b], weights=[0.0, 1.0], seed=1)
    assert numbers(sampled) == [10, 11, 12]


def test_saving_and_loading(tmp_path):
    E.save(D.range(3), tmp_path / "saved")
    assert numbers(E.load(tmp_path / "saved")) == [0, 1, 2]


def test_the_next_element_may_be_missing():
    iterator = iter(D.range(6).batch(4).take(1))
    found, missing = (E.get_next_as_optional(iterator) for _ in range(2))
    assert found.has_value() and found.get_value().tolist() == [0, 1, 2, 3]
    assert not missing.has_value()
    spec = uni.TensorSpec((None,), np.int64)
    assert found.element_spec == missing.element_spec == spec
    with pytest.raises(TypeError, match="iter"):
        E.get_next_as_optional(D.range(3))


def test_an_optional_tells_its_spec():
    made = uni.experimental.Optional.from_value({"a": 1.0, "b": (2,)})
    assert made.element_spec == {
        "a": uni.TensorSpec((), uni.float32),
        "b": (uni.TensorSpec((), uni.int32),),
    }
    spec = uni.TensorSpec((3,), uni.int8)
    assert uni.experimental.Optional.empty(spec).element_spec is spec


def test_a_dataset_is_written_as_records(tmp_path):
    path = str(tmp_path / "records")
    text = D.from_tensor_slices(["a", "", "ccc"])
    E.TFRecordWriter(path, "GZIP").write(text)
    found = uni.data.TFRecordDataset(path, "GZIP").as_numpy_iterator()
    assert isinstance(found, uni.data.NumpyIterator)
    assert list(found) == [b"a", b"", b"ccc"]
    for wrong in [D.range(3), text.batch(2), 3]:
        with pytest.raises(TypeError, match="`dataset`"):
            E.TFRecordWriter(path).write(wrong)


def test_a_numpy_iterator_is_made_of_a_dataset():
    assert list(uni.data.NumpyIterator(D.range(3))) == [0, 1, 2]
