"""Making variables: values, origins and who else has a say."""

import inspect
import logging
import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import central, copies, kind, mirrored, one_device, variable
from unisono._src.foundation.options import VariableSynchronization as Synchronization
from unisono._src.state import creation
from unisono._src.state.storage import Policy


@pytest.mark.feature("B05", "T04", "T05")
@pytest.mark.parametrize(
    ("strategy", "auto", "on_read"),
    [
        (lambda: mirrored(1), Policy.MIRRORED, Policy.ON_READ),
        (lambda: mirrored(2), Policy.MIRRORED, Policy.ON_READ),
        (lambda: central(1), Policy.PLAIN, Policy.PLAIN),
        (lambda: central(2), Policy.CENTRAL, Policy.CENTRAL),
        (one_device, Policy.PLAIN, Policy.PLAIN),
    ],
)
def test_the_strategy_decides_how_a_variable_is_kept(strategy, auto, on_read):
    placement = strategy().extended._placement
    assert creation.policy(placement, Synchronization.AUTO) is auto
    assert creation.policy(placement, Synchronization.ON_WRITE) is auto
    assert creation.policy(placement, Synchronization.ON_READ) is on_read
    assert creation.policy(None, Synchronization.ON_READ) is Policy.PLAIN


@pytest.mark.parametrize(
    ("given", "dtype", "want"),
    [
        (1.0, None, "float32"),
        (1, None, "int32"),
        (True, None, "bool"),
        (1, jnp.float32, "float32"),
        (np.ones(2, np.float16), None, "float16"),
        ([1.0, 2.0], "bfloat16", "bfloat16"),
        (lambda: np.zeros(3, np.int8), None, "int8"),
    ],
)
def test_the_type_is_that_of_the_initial_value_unless_given(given, dtype, want):
    assert unisono.Variable(given, dtype=dtype).dtype == want


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_variable_keeps_the_shape_of_its_first_value(replicas):
    make = partial(variable, mirrored(replicas)) if replicas else unisono.Variable
    open_shapes = [unisono.TensorShape(None), unisono.TensorShape([None]), [None], 1]
    for shape in open_shapes:
        v = make([1.0], shape=shape)
        assert (v.shape, v.initializer) == ((1,), None)
    with pytest.raises(ValueError, match="keeps the shape of its first value"):
        v.assign([1.0, 2.0])
    for shape in ([2], [None, None], 3):
        with pytest.raises(ValueError, match="not compatible with the explicitly"):
            make([1.0], shape=shape)


def test_a_variable_may_start_from_another():
    v = variable(mirrored(2), [1.0, 2.0])
    twin = unisono.Variable(v)
    v.assign([3.0, 4.0])
    assert twin.numpy().tolist() == [1.0, 2.0]


def test_an_initial_value_is_copied():
    array = np.ones(2, np.float32)
    v, w = unisono.Variable(array), variable(mirrored(2), array)
    array[:] = 5.0
    assert v.numpy().tolist() == [1.0, 1.0]
    assert copies(w) == [[1.0, 1.0]] * 2
    source = jnp.ones(2)
    x = unisono.Variable(source)
    unisono.function(lambda: x.assign_add(jnp.ones(2)))()
    assert source.tolist() == [1.0, 1.0]


@pytest.mark.feature("C13")
def test_a_variable_remembers_the_line_that_made_it():
    line = inspect.currentframe().f_lineno + 1
    v = unisono.Variable(1.0)
    assert v.state_cell.origin == f"{__file__}:{line}"


@pytest.mark.feature("B06")
def test_creators_stack_and_the_innermost_is_asked_first():
    log = []

    def creator(tag):
        def create(next_creator, **kwargs):
            log.append(f"{tag} asks")
            made = next_creator(**kwargs)
            log.append(f"{tag} has")
            return made

        return create

    with (
        unisono.variable_creator_scope(creator("outer")),
        unisono.variable_creator_scope(creator("inner")),
    ):
        unisono.Variable(1.0)
    unisono.Variable(1.0)
    assert log == ["inner asks", "outer asks", "outer has", "inner has"]


@pytest.mark.feature("B06")
def test_a_creator_sees_every_argument():
    seen = {}

    def look(next_creator, **kwargs):
        seen.update(kwargs)
        return next_creator(**kwargs)

    with mirrored(2).scope(), unisono.variable_creator_scope(look):
        unisono.Variable(1.0, False, name="v", dtype=jnp.float16)
    assert (seen["initial_value"], seen["trainable"]) == (1.0, False)
    assert (seen["name"], seen["dtype"]) == ("v", jnp.float16)
    assert seen["aggregation"] is unisono.VariableAggregation.NONE
    assert {"shape", "constraint", "synchronization"} <= seen.keys()
    # Those that mean something in TensorFlow's graphs only.
    assert (seen["validate_shape"], seen["caching_device"]) == (True, None)
    assert (seen["variable_def"], seen["import_scope"]) == (None, None)
    assert seen["experimental_enable_variable_lifting"] is True


def test_arguments_for_graphs_are_taken_and_unknown_ones_refused():
    v = unisono.Variable(1.0, validate_shape=False, caching_device="CPU:0")
    assert v.numpy() == 1.0

    def misspell(next_creator, **kwargs):
        return next_creator(trainible=False, **kwargs)

    with (
        unisono.variable_creator_scope(misspell),
        pytest.raises(TypeError, match="unexpected argument 'trainible'"),
    ):
        unisono.Variable(1.0)


@pytest.mark.parametrize(
    ("act", "error", "text"),
    [
        (unisono.Variable, ValueError, "`initial_value` arg to `tf.Variable` must be"),
        (
            lambda: unisono.Variable(lambda: None),
            ValueError,
            r"convert a value \(None\)",
        ),
        (lambda: unisono.Variable("x"), TypeError, "Cannot convert 'x'"),
        (lambda: unisono.Variable(1.0).assign(None), ValueError, "unsupported type"),
        (lambda: unisono.Variable(1.0).assign("x"), TypeError, "Cannot convert 'x'"),
        (lambda: list(unisono.Variable(1.0)), TypeError, "iterate over a scalar"),
        (lambda: unisono.Variable([1.0]).set_shape([2]), ValueError, "not compatible"),
        (
            lambda: unisono.Variable([1.0]).scatter_add(3.0),
            TypeError,
            "Argument `sparse_delta` must be a `tf.IndexedSlices`",
        ),
        (
            lambda: unisono.distribute.experimental.partitioners.MinSizePartitioner(-1),
            ValueError,
            "Argument `min_shard_bytes` must be positive. Received: -1",
        ),
        (
            lambda: unisono.distribute.ShardedVariable([]),
            TypeError,
            "non-empty list of `variables.Variable`s",
        ),
    ],
)
def test_what_a_variable_cannot_be_is_told_in_the_words_of_tensorflow(act, error, text):
    with pytest.raises(error, match=text):
        act()


@pytest.mark.feature("B06")
def test_a_creator_may_give_a_variable_of_its_own():
    mine = unisono.Variable(5.0)
    with unisono.variable_creator_scope(lambda next_creator, **kwargs: mine):
        assert unisono.Variable(1.0) is mine


def test_an_exception_leaves_the_creator_scope():
    with (
        pytest.raises(KeyError),
        unisono.variable_creator_scope(lambda next_creator, **kwargs: None),
    ):
        raise KeyError
    assert kind(unisono.Variable(1.0)) == "ResourceVariable"


def replica_number():
    return int(unisono.distribute.get_replica_context().replica_id_in_sync_group)


def test_replicas_that_give_a_variable_different_names_are_refused():
    with pytest.raises(
        RuntimeError,
        match="create variable v1 with mismatching name on replica 1: replica 0 "
        "created v0",
    ):
        mirrored(2).run(lambda: unisono.Variable(1.0, name=f"v{replica_number()}"))
    with pytest.raises(RuntimeError, match=r"mismatching name .* did not create it"):
        mirrored(2).run(
            lambda: unisono.Variable(1.0, name="v") if replica_number() else None
        )


def test_names_may_differ_in_the_digit_that_makes_them_unique():
    def make():
        return unisono.Variable(1.0, name=f"dense_{replica_number()}/kernel")

    made = mirrored(2).run(make)
    assert kind(made) == "MirroredVariable" and made.name == "dense_0/kernel:0"


def test_each_replica_calls_the_creators_that_it_enters():
    calls = []

    def creator(tag):
        def create(next_creator, **kwargs):
            calls.append(tag)
            return f"{next_creator(**kwargs)}:{tag}"

        return create

    def make():
        with unisono.variable_creator_scope(creator(replica_number())):
            made = unisono.Variable(1.0)
            unisono.distribute.get_replica_context().merge_call(lambda strategy: None)
        return made

    strategy = mirrored(2)
    outside = unisono.variable_creator_scope(lambda next_creator, **kwargs: "outside")
    with strategy.scope(), outside:
        made = strategy.run(make)
    assert made.values == ("outside:0", "outside:1") and calls == [0, 1]


def test_replicas_may_use_a_name_twice_in_the_same_order():
    def make():
        return [unisono.Variable(x, name="v") for x in (1.0, 2.0)]

    made = mirrored(2).run(make)
    assert [v.numpy() for v in made] == [1.0, 2.0]


def test_no_aggregation_may_be_written_as_none():
    none = unisono.VariableAggregation.NONE
    assert unisono.Variable(1.0, aggregation=None).aggregation is none
    with mirrored(2).scope():
        assert unisono.Variable(1.0, aggregation=None).aggregation is none


def freeze(next_creator, **options):
    return next_creator(**{**options, "trainable": False})


def test_a_creator_scope_left_before_a_scope_inside_it_leaves_nothing_behind():
    creators, scope = unisono.variable_creator_scope(freeze), mirrored(2).scope()
    creators.__enter__()
    scope.__enter__()
    with pytest.raises(RuntimeError, match="without proper nesting"):
        creators.__exit__(None, None, None)
    scope.__exit__(None, None, None)
    assert not unisono.distribute.has_strategy()
    assert unisono.Variable(1.0).trainable


@pytest.mark.needs_devices(4)
def test_layers_that_differ_in_a_seed_share_the_program_of_first_values(caplog):
    names = [f"CPU:{i}" for i in range(4)]
    s = unisono.distribute.MirroredStrategy(names, state="sharded", shard_above=8)
    # An array of the program is no seed: it stays a constant.
    table = jnp.arange(160.0).reshape(8, 20)

    def make(strategy):
        keys = [jax.random.key(i) for i in range(5)]
        firsts = [partial(jax.random.normal, key, (8, 52)) for key in keys]
        firsts += [lambda: table + 1, lambda: jnp.ones((8, 52)), lambda: -table]
        with strategy.scope():
            return [unisono.Variable(f) for f in firsts]

    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        found = make(s)
    # Of the keys, of the ones, and of each program with an array.
    done = [r.message for r in caplog.records if "Finished XLA comp" in r.message]
    assert len([m for m in done if "compute_with" in m or "lambda" in m]) == 4
    for own, other in zip(found, make(mirrored(2)), strict=True):
        np.testing.assert_array_equal(own.numpy(), other.numpy())
    assert {x.data.shape for x in found[0].state_cell.array.addressable_shards} == {
        (8, 13)
    }


_OTHER_ARRAYS = """
import jax.numpy as jnp, numpy as np, unisono
names = [f"CPU:{i}" for i in range(2)]
s = unisono.distribute.MirroredStrategy(names, state="sharded", shard_above=8)
tables = [jnp.arange(64.0).reshape(8, 8) * i for i in (1, 2)]
with s.scope():
    found = [unisono.Variable(lambda t=t: t + 0.0) for t in tables]
for own, table in zip(found, tables):
    np.testing.assert_array_equal(own.numpy(), table)
"""


def test_layers_with_other_arrays_have_their_own_first_values():
    # With this setting, which JAX reads when it is imported, the arrays are not in the
    # text of the programs.
    environ = {**os.environ, "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": "1"}
    command = [sys.executable, "-c", _OTHER_ARRAYS]
    subprocess.run(command, env=environ, check=True, timeout=100)
