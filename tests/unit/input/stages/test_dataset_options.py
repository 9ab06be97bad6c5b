"""`Options` take values of TensorFlow's types, and are merged in its order."""

import numpy as np
import pytest

import unisono as uni

D = uni.data.Dataset
E = uni.data.experimental
# A value of each type that TensorFlow's attributes have.
VALUES = {
    bool: True,
    int: 3,
    str: "name",
    list: ["jax"],
    E.AutoShardPolicy: E.AutoShardPolicy.DATA,
    E.AutotuneAlgorithm: E.AutotuneAlgorithm.HILL_CLIMB,
    E.ExternalStatePolicy: E.ExternalStatePolicy.FAIL,
    E.AutotuneOptions: E.AutotuneOptions(),
    E.DistributeOptions: E.DistributeOptions(),
    E.OptimizationOptions: E.OptimizationOptions(),
    uni.data.ThreadingOptions: uni.data.ThreadingOptions(),
}
TYPES: dict[type, dict[str, type]] = {
    uni.data.Options: {
        "autotune": E.AutotuneOptions,
        "dataset_name": str,
        "deterministic": bool,
        "experimental_deterministic": bool,
        "experimental_distribute": E.DistributeOptions,
        "experimental_external_state_policy": E.ExternalStatePolicy,
        "experimental_optimization": E.OptimizationOptions,
        "experimental_slack": bool,
        "experimental_symbolic_checkpoint": bool,
        "experimental_threading": uni.data.ThreadingOptions,
        "experimental_warm_start": bool,
        "framework_type": list,
        "threading": uni.data.ThreadingOptions,
    },
    uni.data.ThreadingOptions: {
        "max_intra_op_parallelism": int,
        "private_threadpool_size": int,
    },
    E.AutotuneOptions: {
        "autotune_algorithm": E.AutotuneAlgorithm,
        "cpu_budget": int,
        "enabled": bool,
        "initial_parallelism": int,
        "min_parallelism": int,
        "ram_budget": int,
    },
    E.DistributeOptions: {"auto_shard_policy": E.AutoShardPolicy, "num_devices": int},
    E.OptimizationOptions: {
        name: bool
        for name in (
            "apply_default_optimizations",
            "filter_fusion",
            "filter_parallelization",
            "inject_prefetch",
            "map_and_batch_fusion",
            "map_and_filter_fusion",
            "map_fusion",
            "map_parallelization",
            "noop_elimination",
            "parallel_batch",
            "seq_interleave_prefetch",
            "shuffle_and_repeat_fusion",
        )
    },
}
FIELDS = [(kind, name) for kind, fields in TYPES.items() for name in fields]


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_an_option_takes_values_of_its_type_alone(kind, name):
    wanted = TYPES[kind][name]
    for value in [None, 1.5, np.bool_(True), np.int64(2), *VALUES.values()]:
        options = kind()
        if isinstance(value, wanted):
            setattr(options, name, value)
            assert getattr(options, name) == value
            continue
        with pytest.raises(TypeError, match=f"must be of type {wanted.__name__}"):
            setattr(options, name, value)


def test_older_names_mean_the_same():
    options = uni.data.Options()
    options.experimental_deterministic = False
    options.experimental_threading.private_threadpool_size = 3
    assert options.deterministic is False
    assert options.threading.private_threadpool_size == 3


def two():
    first, second = uni.data.Options(), uni.data.Options()
    first.deterministic = True
    first.threading.private_threadpool_size = 3
    second.deterministic = False
    second.threading.max_intra_op_parallelism = 2
    return first, second


def test_merging_gives_a_copy_in_which_the_other_wins():
    first, second = two()
    merged = first.merge(second)
    assert merged.deterministic is False
    assert merged.threading.private_threadpool_size == 3
    assert merged.threading.max_intra_op_parallelism == 2
    merged.threading.private_threadpool_size = 5
    assert first.threading.private_threadpool_size == 3
    assert first.threading.max_intra_op_parallelism is None
    assert first.deterministic is True


@pytest.mark.parametrize("other", [None, 3, uni.data.ThreadingOptions()])
def test_only_options_are_merged(other):
    with pytest.raises(TypeError, match="Expected an Options object"):
        uni.data.Options().merge(other)


JOINED = {
    "zip": lambda a, b: D.zip((a, b)),
    "concatenate": lambda a, b: a.concatenate(b),
    "choose": lambda a, b: D.choose_from_datasets([a, b], D.range(2)),
    "later": lambda a, b: a.with_options(b.options()),
}


@pytest.mark.parametrize("how", JOINED)
def test_the_last_input_wins(how):
    first, second = two()
    numbers = D.range(3)
    a, b = numbers.with_options(first), numbers.with_options(second)
    assert JOINED[how](a, b).options().deterministic is False
    assert JOINED[how](b, a).options().deterministic is True
    assert JOINED[how](b, a).options().threading.max_intra_op_parallelism == 2
