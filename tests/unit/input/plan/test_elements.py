"""What elements are: structures, types, text, memory, specs; and options."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset, parts

Spec = uni.TensorSpec
InvalidArgumentError = uni.errors.InvalidArgumentError
Pair = collections.namedtuple("Pair", "a b")


class Loader:
    """Fills one array again and again, as fast loaders do."""

    def __init__(self, kind=np.int64):
        self.kind = kind

    def __iter__(self):
        buffer = np.zeros((2, 3), self.kind)
        for number in range(4):
            buffer[:] = number
            yield buffer


def reusing():
    return iter(Loader())


EXPECTED = [[[n] * 3] * 2 for n in range(4)]


# Memory.


@pytest.mark.parametrize(
    "make",
    [
        lambda: Dataset.from_loader(Loader()),
        lambda: Dataset.from_loader(iter(Loader())),
        lambda: Dataset.from_generator(reusing, np.int64),
        lambda: Dataset.from_generator(
            reusing, output_signature=Spec((None, 3), np.int64)
        ),
    ],
    ids=["loader", "iterator", "generator", "generator with a signature"],
)
def test_a_loader_may_fill_the_same_array_again(make):
    assert [x.tolist() for x in list(make())] == EXPECTED
    assert [x.tolist() for x in make().batch(4)] == [EXPECTED]
    assert sorted(x.tolist() for x in make().shuffle(4)) == EXPECTED
    assert [x.tolist() for x in list(make().prefetch(4))] == EXPECTED
    assert [x.tolist() for x in make().cache().repeat(2)] == EXPECTED * 2


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize("fetch", [True, False])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_step_is_not_changed_by_what_comes_after_it(n, fetch, kind):
    options = uni.distribute.InputOptions(experimental_fetch_to_device=fetch)
    strategy = mirrored(n)
    steps = list(strategy.experimental_distribute_dataset(Loader(kind), options))
    found = [[x for part in step for x in part] for step in parts(n, steps)]
    assert found == EXPECTED
    types = {x.dtype for x in strategy.experimental_local_results(steps[0])}
    # On the host they keep their type; on devices they have one that JAX holds.
    wanted = jax.dtypes.canonicalize_dtype(kind) if fetch else np.dtype(kind)
    assert types == {wanted}


def test_the_arrays_of_a_dataset_cannot_be_changed_by_who_iterates():
    source = np.arange(6.0).reshape(3, 2)
    generated = Dataset.from_generator(lambda: iter(source), np.float64)
    for dataset in (
        Dataset.from_tensor_slices(source),
        Dataset.from_tensor_slices(source).batch(3),
        Dataset.from_tensors(source),
        generated.cache(),
    ):
        for _ in range(2):
            for x in dataset:
                with pytest.raises(ValueError, match="read-only"):
                    x[...] = 1
                x += 1  # A new array, as for a tensor.
    assert source.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert source.flags.writeable


def test_what_the_user_does_to_a_source_does_not_reach_a_step():
    source = np.zeros((4, 2), np.float32)
    strategy = mirrored(2)
    iterator = iter(
        strategy.experimental_distribute_dataset(
            Dataset.from_tensor_slices(source).batch(4)
        )
    )
    step = next(iterator)
    source += 1
    assert parts(2, [step]) == [[[[0.0, 0.0]] * 2] * 2]


# Types and structures.


def test_elements_have_a_method_numpy():
    (batch,) = Dataset.range(3).batch(3)
    assert type(batch.numpy()) is np.ndarray
    assert [type(x.numpy()) for x in Dataset.range(1)] == [np.int64]
    (text,) = Dataset.from_tensors("text")
    assert text.numpy() == b"text"
    assert (batch + 1).numpy().tolist() == [1, 2, 3]
    assert isinstance(batch, np.ndarray)


def test_text_keeps_its_zero_bytes_and_becomes_utf_8():
    texts = ["a", "ä\0", b"\xff\0\0"]
    dataset = Dataset.from_tensor_slices(texts)
    assert [x.item() for x in dataset] == [b"a", "ä\0".encode(), b"\xff\0\0"]
    (batch,) = dataset.batch(3)
    assert batch.tolist() == [b"a", "ä\0".encode(), b"\xff\0\0"]
    assert dataset.batch(3).element_spec == Spec((None,), "string")
    s = mirrored(2)
    (step,) = s.experimental_distribute_dataset(dataset.batch(3))
    assert parts(2, [step]) == [[[b"a", "ä\0".encode()], [b"\xff\0\0"]]]


def test_structures_are_kept_through_every_stage():
    def make():
        nested = {"x": np.arange(8.0), "y": (np.arange(8), np.arange(16).reshape(8, 2))}
        return Dataset.from_tensor_slices(Pair(nested, np.arange(8) % 2 == 0))

    dataset = (
        make()
        .map(lambda p: p)
        .shuffle(8, seed=1)
        .filter(lambda p: p.b)
        .cache()
        .repeat(2)
        .batch(3)
        .unbatch()
        .prefetch(1)
        .batch(8)
    )
    (batch,) = dataset
    assert type(batch) is Pair
    assert sorted(batch.a) == ["x", "y"]
    assert sorted(batch.a["x"].tolist()) == [0, 0, 2, 2, 4, 4, 6, 6]
    assert batch.a["y"][0].tolist() == batch.a["x"].tolist()
    assert batch.a["y"][1][:, 0].tolist() == (2 * batch.a["x"]).tolist()
    assert batch.b.all()


@pytest.mark.parametrize(
    ("elements", "error", "told"),
    [
        ([1, 2.5], InvalidArgumentError, "types: float32, int32"),
        ([np.zeros(2), np.zeros(2, int)], InvalidArgumentError, "types: float64"),
        ([np.zeros(2), np.zeros(3)], InvalidArgumentError, r"shapes: \(2,\), \(3,\)"),
        ([1, np.zeros(3, np.int32)], InvalidArgumentError, r"shapes: \(\), \(3,\)"),
        ([{"a": 1}, {"a": 1, "b": 2}], TypeError, r"\['a'\], another \['a'\], \['b'\]"),
        ([{"a": 1, "b": 2}, {"a": 1}], TypeError, r"\['b'\], another \['a'\]"),
        ([(1, 2), (1, 2, 3)], TypeError, r"\[1\], another \[0\], \[1\], \[2\]"),
        ([(1, 2), 3], TypeError, r"\[1\], another one array"),
        ([np.zeros(2), (1, 2)], TypeError, r"one array, another \[0\], \[1\]"),
        ([np.zeros(2), None], TypeError, "received None"),
    ],
)
def test_a_batch_of_unlike_elements_is_refused(elements, error, told):
    with pytest.raises(error, match=told):
        list(Dataset.from_loader(elements).batch(2))


def test_a_generator_must_keep_its_word():
    def make(element, signature=None):
        signature = signature or Spec((2,), np.int32)
        return list(
            Dataset.from_generator(lambda: iter([element]), output_signature=signature)
        )

    assert make([1, 2])[0].dtype == np.int32
    with pytest.raises(InvalidArgumentError, match=r"shape \(3,\).*shape \(2,\)"):
        make([1, 2, 3])
    with pytest.raises(InvalidArgumentError, match="expected type int32"):
        make(["a", "b"])
    with pytest.raises(InvalidArgumentError, match="another structure"):
        make([1, 2], (Spec((), np.int32),) * 3)
    with pytest.raises(TypeError, match="callable"):
        Dataset.from_generator([1, 2], np.int32)


# Specs.

SPECS = {
    "range": (lambda d: d, Spec((), np.int64)),
    "map": (lambda d: d.map(lambda x: np.zeros((2, 3), np.float32)), Spec((2, 3))),
    "filter": (lambda d: d.filter(lambda x: x > 2), Spec((), np.int64)),
    "batch": (lambda d: d.batch(4), Spec((None,), np.int64)),
    "static": (lambda d: d.batch(4, drop_remainder=True), Spec((4,), np.int64)),
    "unbatch": (lambda d: d.batch(4).unbatch(), Spec((), np.int64)),
    "rebatch": (lambda d: d.batch(4).rebatch(3), Spec((None,), np.int64)),
    "rebatch static": (
        lambda d: d.batch(4).rebatch(3, drop_remainder=True),
        Spec((3,), np.int64),
    ),
    "enumerate": (lambda d: d.enumerate(), (Spec((), np.int64), Spec((), np.int64))),
    "zip": (
        lambda d: Dataset.zip({"a": d, "b": d.batch(2)}),
        {"a": Spec((), np.int64), "b": Spec((None,), np.int64)},
    ),
    "concatenate": (
        lambda d: d.batch(2, drop_remainder=True).concatenate(
            d.batch(3, drop_remainder=True)
        ),
        Spec((None,), np.int64),
    ),
    "flat_map": (
        lambda d: d.flat_map(lambda x: Dataset.from_tensors(np.zeros(2, np.float32))),
        Spec((2,), np.float32),
    ),
    "padded_batch": (
        lambda d: d.map(lambda x: np.zeros(x, np.float32)).padded_batch(2),
        Spec((None, None), np.float32),
    ),
    "map of batches": (
        lambda d: d.batch(4).map(lambda x: (x, x.sum(), x[:, None] + np.zeros(3, int))),
        (Spec((None,), np.int64), Spec((), np.int64), Spec((None, 3), np.int64)),
    ),
    "cache and so on": (
        lambda d: d.cache().shuffle(3).repeat().take(5).skip(1).shard(2, 0).prefetch(1),
        Spec((), np.int64),
    ),
    "scan": (
        lambda d: d.scan(0.0, lambda s, x: (s, np.zeros(x.shape, np.float32) + s)),
        Spec((), np.float32),
    ),
}


@pytest.mark.parametrize(("change", "expected"), SPECS.values(), ids=SPECS)
def test_every_transformation_tells_its_spec(change, expected):
    dataset = change(Dataset.range(10))
    assert dataset.element_spec == expected
    assert iter(dataset).element_spec == expected
    for element in dataset.take(3):
        flat = jax.tree.leaves(element)
        for spec, x in zip(jax.tree.leaves(expected), flat, strict=True):
            assert spec.fits(np.shape(x))
            assert spec.dtype == np.asarray(x).dtype


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.map(lambda x: x * 2),
        lambda d: d.window(2).flat_map(lambda w: w),
        lambda d: d.window(2).shuffle(3).take(1).flat_map(lambda w: w.map(np.abs)),
        lambda d: d.interleave(lambda x: Dataset.range(x)),
    ],
    ids=["map", "window", "shuffled windows", "interleave"],
)
def test_a_dataset_without_elements_has_a_spec(change):
    for empty in (Dataset.range(0), Dataset.range(5).take(0).map(lambda x: x)):
        dataset = change(empty)
        assert dataset.element_spec == Spec((), np.int64)
        made = mirrored(2).experimental_distribute_dataset(dataset.batch(2))
        assert list(made) == []


def test_asking_for_a_spec_disturbs_nothing():
    calls = []

    def make(ask):
        def fn(x):
            calls.append(1)
            return x

        dataset = Dataset.sample_from_datasets(
            [Dataset.range(50), Dataset.range(100, 150)], seed=1
        )
        dataset = dataset.shuffle(9, seed=2).map(fn)
        if ask:
            assert dataset.element_spec == Spec((), np.int64)
        return [[int(x) for x in dataset] for _ in range(2)]

    assert make(ask=True) == make(ask=False)
    assert len(calls) <= 402


def test_jax_arrays_are_elements_too():
    dataset = Dataset.from_tensor_slices(jnp.arange(4.0)).map(lambda x: jnp.sin(x))
    (batch,) = dataset.batch(4)
    np.testing.assert_allclose(batch, np.sin(np.arange(4.0)), rtol=1e-6)
    halves = Dataset.from_tensor_slices(jnp.arange(4.0, dtype=jnp.bfloat16)).batch(4)
    (step,) = mirrored(2).experimental_distribute_dataset(halves)
    assert parts(2, [step]) == [[[0.0, 1.0], [2.0, 3.0]]]
    assert step.values[0].dtype == jnp.bfloat16


# Options.


def test_options_of_a_dataset_are_copies():
    policy = uni.data.experimental.AutoShardPolicy
    options = uni.data.Options()
    options.experimental_distribute.auto_shard_policy = policy.OFF
    dataset = Dataset.range(3).with_options(options)
    options.experimental_distribute.auto_shard_policy = policy.FILE
    found = dataset.options()
    assert found.experimental_distribute.auto_shard_policy == policy.OFF
    found.experimental_distribute.auto_shard_policy = policy.DATA
    again = dataset.options()
    assert again.experimental_distribute.auto_shard_policy == policy.OFF

    later = uni.data.Options()
    later.deterministic = True
    merged = dataset.with_options(later).options()
    assert merged.deterministic
    assert merged.experimental_distribute.auto_shard_policy == policy.OFF


@pytest.mark.feature("H13", "H17")
def test_options_are_checked():
    options = uni.data.Options()
    with pytest.raises(AttributeError, match="experimental_distrbute"):
        options.experimental_distrbute = None
    with pytest.raises(TypeError, match="AutoShardPolicy, received 'OFF'"):
        options.experimental_distribute.auto_shard_policy = "OFF"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="number of processes"):
        options.worker_processes = -1
    with pytest.raises(TypeError, match="Options"):
        Dataset.range(3).with_options({"deterministic": True})
    options.experimental_distribute.auto_shard = False
    found = options.experimental_distribute.auto_shard_policy
    assert found == uni.data.experimental.AutoShardPolicy.OFF


def test_texts_that_end_in_zero_bytes_are_told_apart():
    found = Dataset.from_tensor_slices([b"a", b"a\0", b"a"]).unique()
    assert list(found.as_numpy_iterator()) == [b"a", b"a\0"]


def test_lists_of_single_texts_keep_every_byte():
    texts = [uni.constant("ab"), uni.constant(b"c\0"), "d"]
    for given in (texts, [[x] for x in texts]):
        (found,) = Dataset.from_tensors(given).as_numpy_iterator()
        assert found.ravel().tolist() == [b"ab", b"c\0", b"d"]
    sliced = Dataset.from_tensor_slices(texts).filter(lambda x: x == "ab")
    assert [*sliced.as_numpy_iterator()] == [b"ab"]
    assert uni.convert_to_tensor(texts[:2]).tolist() == [b"ab", b"c\0"]
    assert uni.strings.length(texts).tolist() == [2, 2, 1]
