"""Components of elements: dicts in any order of keys, datasets in elements."""

import collections
import copy
import operator

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset, resumed, saved

Point = collections.namedtuple("Point", "x y")


def lists(element):
    return {k: v.tolist() for k, v in element.items()}


def test_padding_values_go_by_key_and_none_is_the_default():
    dataset = Dataset.range(1, 3).map(
        lambda i: {"b": np.full(2, i), "a": np.full(1, i)}
    )
    values = {"a": np.int64(-1), "b": np.int64(7)}
    shapes = {"a": [3], "b": [3]}
    (batch,) = dataset.padded_batch(2, shapes, values)
    assert lists(batch) == {
        "b": [[1, 1, 7], [2, 2, 7]],
        "a": [[1, -1, -1], [2, -1, -1]],
    }
    (batch,) = dataset.padded_batch(2, shapes, {**values, "a": None})
    assert lists(batch)["a"] == [[1, 0, 0], [2, 0, 0]]
    (batch,) = dataset.padded_batch(2, shapes, np.int64(5))
    assert lists(batch) == {"b": [[1, 1, 5], [2, 2, 5]], "a": [[1, 5, 5], [2, 5, 5]]}
    pairs = dataset.map(lambda e: (e["b"], e["a"]))
    (batch,) = pairs.padded_batch(2, ([3], [3]), (np.int64(7), None))
    assert batch[1].tolist() == [[1, 0, 0], [2, 0, 0]]


def test_padding_values_of_another_structure_are_refused():
    dataset = Dataset.range(3).map(lambda i: {"a": [i], "b": [i]})
    with pytest.raises(ValueError, match=r"components \['a', 'c'\]"):
        dataset.padded_batch(2, padding_values={"a": 1, "c": 2})
    with pytest.raises(ValueError, match="structure of an element"):
        dataset.padded_batch(2, padding_values=(1, 2))


@pytest.mark.parametrize("value", [0.5, np.float32(2), np.int64(300), 300, "a"])
def test_a_padding_value_that_its_component_cannot_hold_is_refused(value):
    dataset = Dataset.from_tensor_slices(np.uint8([[1], [2]]))
    with pytest.raises((TypeError, OverflowError), match=r"padded with|out of bounds"):
        dataset.padded_batch(2, [3], value)


def test_a_padding_value_of_another_width_is_taken():
    rows = Dataset.from_tensor_slices(np.int32([[1], [2]]))
    (batch,) = rows.padded_batch(2, [2], np.int64(-1))
    assert batch.tolist() == [[1, -1], [2, -1]] and batch.dtype == np.int32
    (batch,) = rows.map(lambda x: np.float64(x)).padded_batch(2, [2], np.float32(0.5))
    assert batch.tolist() == [[1.0, 0.5], [2.0, 0.5]] and batch.dtype == np.float64


def turned(count=2):
    """Elements whose keys come in one order and in the other, in turn."""
    one = Dataset.from_tensor_slices(
        {"x": np.arange(count), "y": np.arange(count) + 10}
    )
    two = Dataset.from_tensor_slices(
        {"y": np.arange(count) + 100, "x": np.arange(count) + 5}
    )
    return Dataset.choose_from_datasets([one, two], Dataset.range(2).repeat())


def test_parts_of_replicas_go_by_key():
    strategy = mirrored(2)
    steps = [
        {k: [int(v) for v in strategy.experimental_local_results(e[k])] for k in "xy"}
        for e in strategy.distribute_datasets_from_function(lambda c: turned())
    ]
    assert steps == [{"x": [0, 5], "y": [10, 100]}, {"x": [1, 6], "y": [11, 101]}]


def test_batches_go_by_key():
    for batched in (turned().batch(4), turned().padded_batch(4)):
        (batch,) = batched
        assert lists(batch) == {"x": [0, 5, 1, 6], "y": [10, 100, 11, 101]}


def test_the_state_of_a_scan_goes_by_key():
    def add(state, x):
        made = {"a": state["a"] - x, "b": state["b"] + x}
        return made, state["a"] * 1000 + state["b"]

    def made():
        return Dataset.range(6).scan({"b": np.int64(0), "a": np.int64(100)}, add)

    whole = [int(x) for x in made()]
    iterator = iter(made())
    for _ in range(3):
        next(iterator)
    assert [int(x) for x in resumed(made(), saved(iterator))] == whole[3:]


def test_the_same_keys_in_another_order_are_the_same_structure(tmp_path):
    spec = uni.TensorSpec((), np.int32)
    one = Dataset.from_tensor_slices({"x": [1], "y": [2]})
    other = Dataset.from_tensor_slices({"y": [20], "x": [10]})
    assert [int(e["x"]) for e in one.concatenate(other)] == [1, 10]
    zero = np.int64(0)
    total = Dataset.range(4).reduce(
        {"b": zero, "a": zero}, lambda s, x: {"a": s["a"] + x, "b": s["b"]}
    )
    assert (int(total["a"]), int(total["b"])) == (6, 0)
    generated = Dataset.from_generator(
        lambda: iter([{"b": 3, "a": 4}]), output_signature={"a": spec, "b": spec}
    )
    assert [(int(e["a"]), int(e["b"])) for e in generated] == [(4, 3)]
    one.save(tmp_path)
    loaded = Dataset.load(tmp_path, {"y": spec, "x": spec})
    assert [(int(e["x"]), int(e["y"])) for e in loaded] == [(1, 2)]


def test_a_function_takes_keys_in_any_order():
    strategy = mirrored(2)
    spec = {"x": uni.TensorSpec((), np.int32), "y": uni.TensorSpec((), np.int32)}

    @uni.function(input_signature=[spec])
    def step(e):
        return strategy.run(lambda e: e["x"] * 100 + e["y"], args=(e,))

    results = strategy.experimental_local_results
    for given in ({"x": 1, "y": 2}, {"y": 2, "x": 1}):
        assert [int(v) for v in results(step(given))] == [102, 102]


def test_a_generator_s_named_tuples_stay():
    spec = uni.TensorSpec((), np.int32)
    dataset = Dataset.from_generator(
        lambda: iter([(1, 2)]), output_signature=Point(spec, spec)
    )
    (element,) = dataset
    assert isinstance(element, Point)
    assert int(element.y) == 2


@pytest.mark.parametrize("wrong", [1, [1], 1.5, None, True, np.array([1])])
def test_numbers_of_a_generator_are_not_taken_for_texts(wrong):
    spec = uni.TensorSpec(None, uni.string)
    texts = Dataset.from_generator(lambda: iter(["a", wrong]), output_signature=spec)
    with pytest.raises(uni.errors.InvalidArgumentError, match="expected type string"):
        list(texts)
    assert [x.item() for x in texts.ignore_errors()] == [b"a"]


def test_a_generator_yields_lists_of_no_texts():
    spec = uni.TensorSpec((None,), uni.string)
    rows = [["red", "blue"], [], np.zeros(0), ["green"]]
    texts = Dataset.from_generator(lambda: iter(rows), output_signature=spec)
    assert [x.tolist() for x in texts] == [[b"red", b"blue"], [], [], [b"green"]]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0.9, uni.int64),
        ([1.5, 2.7], uni.int32),
        (2, uni.bool),
        (jnp.ones(2), uni.int32),
    ],
)
def test_types_of_a_generator_do_not_cut_numbers_off(value, dtype):
    wrong = Dataset.from_generator(lambda: iter([value]), output_types=dtype)
    with pytest.raises(uni.errors.InvalidArgumentError, match="expected type"):
        list(wrong)
    # NumPy's numbers are, and so are all where a signature is given, as in TensorFlow.
    given = [np.asarray(value)]
    assert len(list(Dataset.from_generator(lambda: iter(given), dtype))) == 1
    spec = uni.TensorSpec(None, dtype)
    assert len(
        list(Dataset.from_generator(lambda: iter([value]), None, None, None, spec))
    )


def test_a_generator_gets_numbers_of_numpy():
    seen = []

    def elements(*given):
        seen.extend((type(x), hash(x)) for x in given)
        yield 1

    made = Dataset.from_generator(
        elements, uni.int32, args=[3, 0.5, "a", uni.constant(2)]
    )
    list(made)
    assert [kind for kind, _ in seen] == [np.int32, np.float32, bytes, np.int32]


def test_an_optional_holds_tensors():
    iterator = iter(Dataset.range(1))
    full, empty = (iterator.get_next_as_optional() for _ in range(2))
    assert full.has_value().numpy() and not empty.has_value().numpy()
    assert full.get_value().numpy() == 0
    assert uni.experimental.Optional.from_value(3).get_value().numpy() == 3


# Datasets in elements.


def inside(dataset):
    return [int(x) for x in dataset]


def test_windows_can_be_looped_over():
    assert [inside(w) for w in Dataset.range(5).window(2)] == [[0, 1], [2, 3], [4]]
    pairs = Dataset.from_tensor_slices({"a": [1, 2, 3], "b": [4, 5, 6]}).window(2)
    assert [{k: inside(v) for k, v in w.items()} for w in pairs] == [
        {"a": [1, 2], "b": [4, 5]},
        {"a": [3], "b": [6]},
    ]
    numbered = Dataset.range(5).window(2).enumerate().skip(1)
    assert [(int(i), inside(w)) for i, w in numbered] == [(1, [2, 3]), (2, [4])]
    both = Dataset.range(4).window(2).concatenate(Dataset.range(4).window(3))
    assert [inside(w) for w in both] == [[0, 1], [2, 3], [0, 1, 2], [3]]


def test_functions_and_sources_may_give_datasets():
    made = Dataset.range(3).map(Dataset.range)
    assert [inside(d) for d in made] == [[], [0], [0, 1]]
    pairs = Dataset.range(3).map(lambda i: (i, Dataset.range(i)))
    assert inside(pairs.flat_map(lambda i, d: d.map(lambda x: 10 * i + x))) == [
        10,
        20,
        21,
    ]
    (only,) = Dataset.from_tensors(Dataset.range(3))
    assert inside(only) == [0, 1, 2]
    assert made.element_spec == uni.data.DatasetSpec(uni.TensorSpec((), np.int64))


def test_datasets_cannot_be_batched():
    with pytest.raises(TypeError, match=r"flat_map\(lambda window: window.batch"):
        list(Dataset.range(4).window(2).batch(2))


def test_a_dict_is_not_reduced_along_an_axis():
    strategy = mirrored(2)
    found = strategy.run(lambda: {"a": np.arange(2.0), "b": np.arange(2.0)})
    with pytest.raises(TypeError, match=r"one array, received a dict of \['a', 'b'\]"):
        strategy.reduce("SUM", found, axis=0)
    assert strategy.reduce("SUM", found, axis=None)["a"].tolist() == [0, 2]


def test_names_in_the_function_of_reduce_compute_on_the_host():
    dataset = uni.data.Dataset.range(3)
    total = dataset.reduce(
        np.float64(0), lambda state, x: state + uni.cast(x, uni.float64) / 3
    )
    assert total.dtype == np.float64 and float(total) == 0 + 1 / 3 + 2 / 3
    text = dataset.reduce("", lambda state, x: state + uni.strings.as_string(x))
    assert text.numpy() == b"012"


def test_a_method_of_tensorflow_that_is_missing_says_what_to_write():
    dataset = Dataset.range(3)
    with pytest.raises(AttributeError, match=r"'snapshot'\. Use cache\(filename\)"):
        operator.attrgetter("snapshot")(dataset)
    with pytest.raises(AttributeError, match=r"has no attribute 'cardinal'$"):
        operator.attrgetter("cardinal")(dataset)
    assert not hasattr(dataset, "ragged_batch")
    assert len(copy.deepcopy(dataset)) == 3
