"""Made-up arguments and files of strangers end in documented exceptions only.

The examples are the same every time; `pytest --hypothesis-profile=search` tries many
others.
"""

import copy
import hashlib
import inspect
import json
import os
import pathlib
import shutil
import sys
import tempfile
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import unisono as uni
from tests.unit.input import method_arguments
from unisono._src.input.api import saved_dataset
from unisono._src.machines import devices
from unisono._src.workers import process_group
from unisono.errors import DataLossError, NotFoundError

D = uni.data.Dataset


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """Lets made-up names of files and folders land in a temporary folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("fuzzed"))
        yield


# Numbers, texts, structures and objects that no argument expects.
WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, -2, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400]),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=8),
    st.sampled_from(
        ["x" * 300, "a\0b", "/nowhere/at/all", "GZIP", "float32", "\ud800"]
    ),
    st.binary(max_size=8),
    st.lists(st.one_of(st.integers(), st.lists(st.integers(), max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.sampled_from([object(), object, np.float32, len, (), {}, set(), slice(1)]),
    st.builds(np.full, st.sampled_from([(), (0,), (2,), (2, 2)]), st.integers(-9, 9)),
    st.builds(lambda n: jnp.full((2,), n), st.integers(-9, 9)),
)


# Datasets.


def same(*parts):
    return parts[0] if len(parts) == 1 else parts


VALID: dict[str, dict[str, Any]] = {
    "from_generator": {"generator": lambda: iter([1]), "output_types": np.int64},
    "range": {"args": [3]},
    "list_files": {"file_pattern": __file__},
    "choose_from_datasets": {"datasets": [D.range(3)], "choice_dataset": D.range(1)},
    "sample_from_datasets": {"datasets": [D.range(3)]},
    "load": {"path": "/nowhere/at/all"},
    "save": {"path": "/dev/null/x"},
    "map": {"map_func": same},
    "filter": {"predicate": lambda x: True},
    "batch": {"batch_size": 2},
    "padded_batch": {"batch_size": 2},
    "rebatch": {"batch_size": 2},
    "shuffle": {"buffer_size": 2},
    "take": {"count": 2},
    "skip": {"count": 2},
    "shard": {"num_shards": 2, "index": 0},
    "prefetch": {"buffer_size": 2},
    "interleave": {"map_func": lambda x: D.range(2)},
    "flat_map": {"map_func": lambda x: D.range(2)},
    "concatenate": {"dataset": D.range(3)},
    "window": {"size": 2},
    "take_while": {"predicate": lambda x: True},
    "scan": {"initial_state": np.int64(0), "scan_func": lambda s, x: (s, x)},
    "apply": {"transformation_func": same},
    "group_by_window": {
        "key_func": lambda x: 0, "reduce_func": lambda k, g: g, "window_size": 2
    },
    "bucket_by_sequence_length": {
        "element_length_func": lambda x: 1,
        "bucket_boundaries": [2],
        "bucket_batch_sizes": [2, 2],
    },
    "rejection_resample": {"class_func": lambda x: 0, "target_dist": [1.0]},
    "reduce": {"initial_state": np.int64(0), "reduce_func": lambda s, x: s},
}  # fmt: skip
ARGUMENTS = [
    (method, argument)
    for method, given in method_arguments.METHODS.items()
    for argument in given
    if argument not in method_arguments.unchecked(method)
]
# What a method or an iteration may raise; `FileNotFoundError` and others are `OSError`.
DOCUMENTED = (TypeError, ValueError, OSError, uni.errors.FailedPreconditionError)


def call_method(method, arguments):
    source = D.range(4).batch(2) if method in ("rebatch", "unbatch") else D.range(4)
    is_static = isinstance(inspect.getattr_static(D, method), staticmethod)
    bound = getattr(D if is_static else source, method)
    positional = arguments.pop("args", ()) if method == "range" else ()
    return bound(*positional, **arguments)


@given(st.sampled_from(ARGUMENTS), WEIRD)
def test_wrong_arguments_of_datasets_are_named(where, value):
    method, argument = where
    arguments = {**VALID.get(method, {}), argument: value}
    if method == "range" and not isinstance(arguments["args"], list):
        arguments["args"] = [arguments["args"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_dataset, "PATIENCE", 0.0)
        try:
            made = call_method(method, arguments)
        except DOCUMENTED as error:
            names = method_arguments.METHODS[method]
            is_named = any(name in str(error) for name in (*names, method, "pattern"))
            # The error of a function that was given is not ours.
            is_named = is_named or callable(value) or isinstance(error, OSError)
            assert is_named, f"{method}: {error}"
            return
        if isinstance(made, D):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    list(made.take(3))
                except (*DOCUMENTED, RuntimeError):
                    return


# Devices.


@given(st.one_of(WEIRD, st.text(alphabet="/:cpuGPUjobtaskdevice0123-_ ", max_size=30)))
def test_devices_are_read_or_refused_in_words(name):
    try:
        parsed = devices.parse(name)
        assert parsed.index >= 0
        assert devices.parse(str(parsed)) == parsed
    except ValueError as error:
        assert "device name" in str(error)
    try:
        devices.list_logical_devices(name)
    except TypeError as error:
        assert "device_type" in str(error)


# Files.


def places(tree, path=()):
    """Yields the path of every part of some JSON data."""
    yield path
    if isinstance(tree, dict):
        for key, child in tree.items():
            yield from places(child, (*path, key))
    elif isinstance(tree, list):
        for number, child in enumerate(tree):
            yield from places(child, (*path, number))


JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([10**400, -1, 0, 2**40, 1.5]),
    st.text(max_size=6),
    st.sampled_from(["../x", "a0", "p0", "uint8", "random key", "plain", "leaf"]),
    st.lists(st.integers(-1, 9), max_size=3),
    st.sampled_from(
        [{}, {"$complex": []}, {"$float": 10**400}, {"$items": [[1]]}, {"$tuple": {}}]
    ),
)


@st.composite
def changes(draw):
    """Returns a function that changes JSON data in one to three places."""
    made = draw(
        st.lists(st.tuples(st.integers(0, 10**6), JSON), min_size=1, max_size=3)
    )

    def change(tree):
        for number, value in made:
            found = [p for p in places(tree) if p]
            *way, last = found[number % len(found)]
            at = tree
            for key in way:
                at = at[key]
            at[last] = copy.deepcopy(value)
        return tree

    return change


# What schedulers tell.

resolvers = uni.distribute.cluster_resolver
# A variable of the environment has neither NUL nor half a character.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
CONFIG = {
    "cluster": {"chief": ["a:1"], "worker": ["b:2", "[::1]:3"], "ps": {"4": "d:5"}},
    "task": {"type": "worker", "index": 1},
    "rpc_layer": "grpc",
    "session_master": "grpc://x:1",
}
NUMBER = st.one_of(
    st.integers(-1, 5).map(str),
    st.sampled_from(
        ["", "65535", "65536", "9" * 30, "1.0", "+1", "\u0663", " 2", "2\n"]
    ),
    TEXT,
)
HOSTS = st.one_of(
    st.sampled_from(
        ["n[1-2]", "n[01-02],m5", "n1,n1", "n[2-1]", "n[1-99999999]", "n[1-9]" * 5,
         "n[1-999]m[1-999]", "[[1]]", "n[", "n]", "n[1-]", "n[]", ",", "a" * 300, "]["]
    ),
    st.text("n[]-,019 m.", max_size=14),
    TEXT,
)  # fmt: skip
COUNTS = st.one_of(
    st.sampled_from(["2", "1(x2)", "2,1", "1(x0)", "0", "1(x999999999)", "1(x2", ",1"]),
    st.text("0129(x),", max_size=10),
    TEXT,
)
SLURM = {
    "SLURM_PROCID": NUMBER,
    "SLURM_STEP_NUM_TASKS": NUMBER,
    "SLURM_STEP_NODELIST": HOSTS,
    "SLURM_STEP_TASKS_PER_NODE": COUNTS,
    "SLURM_NODEID": NUMBER,
    "SLURM_LOCALID": NUMBER,
    "SLURM_GPUS_PER_TASK": NUMBER,
    "CUDA_VISIBLE_DEVICES": st.one_of(st.just(""), st.just("0,1,2,3"), NUMBER, TEXT),
}
STEP = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "CUDA_VISIBLE_DEVICES": "",
}
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL = (
    "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"
)  # fmt: skip


def changed(valid, variables):
    """Returns environments that differ from a valid one in a few variables."""
    some = st.fixed_dictionaries({}, optional=variables)
    without = st.sets(st.sampled_from(sorted(valid)), max_size=1)
    return st.builds(
        lambda new, less: {k: v for k, v in {**valid, **new}.items() if k not in less},
        some,
        without,
    )


def ask_resolver(make, environment):
    """Asks a resolver all that a strategy asks; returns its error, or None."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("SLURM_", "OMPI_", "PMI_", "MV2_", "MPI_", "TF_CONF")):
                patch.delenv(name)
        # A GPU that is named here is not looked for; resolvers may change the variable.
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        # MPI itself would end the process over variables that are not its own.
        patch.setitem(sys.modules, "mpi4py", None)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            found = make()
            cluster = found.cluster_spec()
            task = found.task_type, found.task_id
            assert all(n >= 0 for n in found.num_accelerators().values())
            assert isinstance(found.master(), str)
            assert found.rpc_layer is None or found.rpc_layer.isascii()
            group = process_group.group_of(cluster.as_dict(), *task)
        except (TypeError, ValueError, RuntimeError) as error:
            return error
        assert 0 <= group.index < group.size
        return None


@given(
    st.one_of(
        TEXT,
        st.text('{}[]":,0123clusterwoktaskindyp ', max_size=40),
        JSON.map(json.dumps),
        changes().map(lambda change: json.dumps(change(copy.deepcopy(CONFIG)))),
        st.sampled_from(["[" * 99_999, '{"a":' * 9_999, "NaN", "1" * 9999, "\ufeff{}"]),
    )
)
def test_tf_config_is_read_or_refused_by_name(text):
    error = ask_resolver(resolvers.TFConfigClusterResolver, {"TF_CONFIG": text})
    if error is not None:
        assert type(error) is ValueError
        words = (
            "TF_CONFIG",
            "No task with",
            "cannot run this strategy",
            "This process",
        )
        assert any(word in str(error) for word in words), error


@given(changed(STEP, SLURM))
def test_a_slurm_step_is_read_or_refused_by_name(environment):
    error = ask_resolver(resolvers.SlurmClusterResolver, environment)
    if error is not None:
        assert type(error) in (ValueError, RuntimeError)
        words = ("SLURM_", "port_base", "tasks but only", "more GPUs per node")
        assert any(word in str(error) for word in words), error


@given(
    st.integers(0, 2).flatmap(
        lambda n: changed(
            {RANKS[n]: "1", SIZES[n]: "2", LOCAL[n]: "2"},
            dict.fromkeys((RANKS[n], SIZES[n], LOCAL[n], RANKS[0], SIZES[0]), NUMBER),
        )
    )
)
def test_ranks_of_mpi_are_read_or_refused_by_name(environment):
    error = ask_resolver(resolvers.MPIClusterResolver, environment)
    if error is not None:
        assert type(error) in (ValueError, RuntimeError)
        words = (*RANKS, *SIZES, *LOCAL, "hosts", "The port of rank")
        assert any(word in str(error) for word in words), error


WRONG = st.one_of(
    WEIRD,
    st.dictionaries(st.one_of(st.integers(0, 2), st.just("a")), WEIRD, max_size=2),
)
CONSTRUCTORS = [
    *((resolvers.SlurmClusterResolver, name) for name in
      ("jobs", "port_base", "gpus_per_node", "gpus_per_task", "tasks_per_node")),
    *((resolvers.MPIClusterResolver, name) for name in ("hosts", "port_base")),
    *((resolvers.TFConfigClusterResolver, name) for name in ("task_type", "task_id")),
]  # fmt: skip


@given(st.sampled_from(CONSTRUCTORS), WRONG)
@example(CONSTRUCTORS[0], 1.5)
@example(CONSTRUCTORS[0], {1: 1, "b": 1})
@example(CONSTRUCTORS[0], {"a": -1, "b": 3})
@example(CONSTRUCTORS[0], {"worker": 2.0})
@example(CONSTRUCTORS[2], 2**70)
@example(CONSTRUCTORS[4], {"n1": "x"})
@example(CONSTRUCTORS[5], 7)
@example(CONSTRUCTORS[6], None)
@example(CONSTRUCTORS[8], float("inf"))
def test_wrong_arguments_of_resolvers_are_named(where, value):
    kind, argument = where
    environment = {**STEP, RANKS[0]: "1", SIZES[0]: "2", LOCAL[0]: "2"}
    environment["TF_CONFIG"] = json.dumps({k: CONFIG[k] for k in ("cluster", "task")})
    error = ask_resolver(lambda: kind(**{argument: value}), environment)
    if error is not None:
        assert type(error) in (TypeError, ValueError, RuntimeError)
        words = (
            *(argument, "tasks but only", "SLURM_", "rank", "GPUs per node"),
            *("No such job", "No task with", "This process", "cannot run this"),
        )
        assert any(word in str(error) for word in words), error


def sign(path, rest):
    path.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)


def make_files():
    """Returns a folder with a checkpoint and an exported model."""
    where = pathlib.Path(tempfile.mkdtemp(prefix="unisono-fuzz-"))
    state = {"a": 1.5, "b": (1, 2), "c": [b"x", None], "d": 1j, "e": np.arange(3)}
    checkpoint = uni.train.Checkpoint(
        v=uni.Variable(jnp.ones((2, 3))),
        w=uni.Variable(1),
        k=jax.random.key(1),
        s=state,
    )
    checkpoint.save(where / "c")
    module: Any = uni.Module()
    module.v, module.parts = uni.Variable(2.0), [uni.Variable(1.0), {"x": 3}]
    scalar = uni.TensorSpec([], "float32")
    module.f = uni.function(lambda x: module.v * x, input_signature=[scalar])
    uni.saved_model.save(module, where / "model")
    return where


@pytest.fixture(scope="module")
def folder():
    made = make_files()
    yield made
    shutil.rmtree(made)


@given(changes(), st.booleans())
def test_a_strangers_manifest_is_read_or_refused(folder, change, is_header):
    path = folder / "c-1" / "capsule.json"
    whole = path.read_bytes()
    _, header, body = whole.split(b"\n", 2)
    parts = [json.loads(header), json.loads(body)]
    parts[0 if is_header else 1] = change(parts[0 if is_header else 1])
    sign(path, b"\n".join(json.dumps(p).encode() for p in parts))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            uni.train.latest_checkpoint(folder)
        fresh = uni.train.Checkpoint(v=uni.Variable(jnp.zeros((2, 3))), s={})
        fresh.read(folder / "c-1").expect_partial()
    except (DataLossError, NotFoundError, uni.errors.InvalidArgumentError):
        pass
    except ValueError as error:
        # A shape that is not the variable's, or values of several workers.
        assert "shape" in str(error) or "workers" in str(error)
    finally:
        path.write_bytes(whole)


@given(changes())
def test_a_strangers_model_is_loaded_or_refused(folder, change):
    path = folder / "model" / "saved_model.json"
    whole = path.read_bytes()
    fields = change(json.loads(whole.split(b"\n", 1)[1]))
    sign(path, json.dumps(fields).encode())
    try:
        uni.saved_model.load(folder / "model")
    except (DataLossError, NotFoundError):
        pass
    finally:
        path.write_bytes(whole)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "r"
    with uni.io.TFRecordWriter(path) as writer:
        for n in range(5):
            writer.write(bytes([n]) * (n * 7))
    return path


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=3),
       st.integers(0, 40))  # fmt: skip
def test_damaged_records_are_never_other_records(records, flips, cut):
    whole = records.read_bytes()
    data = bytearray(whole[: len(whole) - cut])
    for position, bits in flips:
        data[position % len(data)] ^= bits
    records.write_bytes(data)
    try:
        found = list(uni.data.TFRecordDataset(records).as_numpy_iterator())
        right = [bytes([n]) * (n * 7) for n in range(5)]
        assert found == right[: len(found)]
    except DataLossError as error:
        assert str(records) in str(error)
    finally:
        records.write_bytes(whole)
