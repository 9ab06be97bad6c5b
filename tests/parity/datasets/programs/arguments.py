"""Arguments that each library must refuse alike, options, lists of numbers, specs."""

import numpy as np

from tests.parity.datasets.kit import both, elements, error, program, spec, write


def _same(x):
    return x


def _refused(calls):
    """Returns what each call raises by itself, before any element is asked for."""
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "ok"
        except Exception as e:
            found[name] = type(e).__name__
    return found


@program()
def numbers_that_are_none(tf, tmp):
    r = tf.data.Dataset.range(4)
    return _refused(
        {
            "map, text": lambda: r.map(_same, num_parallel_calls="2"),
            "map, a fraction": lambda: r.map(_same, num_parallel_calls=2.7),
            "batch": lambda: r.batch(2, num_parallel_calls="x"),
            "drop_remainder": lambda: r.batch(2, drop_remainder="x"),
            "rebatch, text": lambda: r.batch(2).rebatch("x"),
            "rebatch, None": lambda: r.batch(2).rebatch(None),
            "rebatch, a fraction": lambda: r.batch(2).rebatch(2.7),
            "prefetch, None": lambda: r.prefetch(None),
            "take, None": lambda: r.take(None),
            "seed, text": lambda: r.shuffle(3, seed="x"),
            "seed, a fraction": lambda: r.shuffle(3, seed=1.7),
            "random": lambda: tf.data.Dataset.random("x"),
            "cycle_length": lambda: r.interleave(lambda x: r, cycle_length="x"),
            "cardinality": lambda: tf.data.experimental.assert_cardinality("x")(r),
        }
    )


@program()
def datasets_that_are_none(tf, tmp):
    dataset = tf.data.Dataset
    r, floats = dataset.range(4), dataset.from_tensors(1.0)
    return _refused(
        {
            "zip of a list": lambda: dataset.zip([r, r]),
            "zip of a list in a tuple": lambda: dataset.zip((r, [r, r])),
            "zip of None": lambda: dataset.zip((r, None)),
            "concatenate": lambda: r.concatenate(None),
            "choose of none": lambda: dataset.choose_from_datasets([], r),
            "choose by a number": lambda: dataset.choose_from_datasets([r], 3),
            "choose by floats": lambda: dataset.choose_from_datasets([r], floats),
            "choose of two types": lambda: dataset.choose_from_datasets([r, floats], r),
            "sample of none": lambda: dataset.sample_from_datasets([]),
            "sample of two types": lambda: dataset.sample_from_datasets([r, floats]),
            "too few weights": lambda: dataset.sample_from_datasets([r, r], [1.0]),
            "apply": lambda: r.apply("x"),
        }
    )


@program()
def structures_of_shapes(tf, tmp):
    dataset = tf.data.Dataset
    pair = dataset.from_tensors((np.arange(2), np.arange(3)))
    keyed = dataset.from_tensors({"a": np.arange(2), "b": np.arange(3)})
    types = (np.int64, np.int64)
    return _refused(
        {
            "a list": lambda: pair.padded_batch(2, [None]),
            "one": lambda: pair.padded_batch(2, ([None],)),
            "three": lambda: pair.padded_batch(2, ([None],) * 3),
            "a dict": lambda: pair.padded_batch(2, {"a": [None], "b": [None]}),
            "other keys": lambda: keyed.padded_batch(2, {"a": [None], "c": [None]}),
            "too few keys": lambda: keyed.padded_batch(2, {"a": [None]}),
            "a tuple": lambda: keyed.padded_batch(2, ([None], [None])),
            "a fraction": lambda: pair.padded_batch(2, ([1.5], [None])),
            "too small": lambda: pair.padded_batch(2, ([1], [None])),
            "generated, one": lambda: dataset.from_generator(iter, types, ((),)),
            "generated, keys": lambda: dataset.from_generator(
                iter, {"a": np.int64}, {"b": ()}
            ),
            "generated, args": lambda: dataset.from_generator(iter, np.int64, args=3),
        }
    )


@program()
def files_that_are_none(tf, tmp):
    data = tf.data
    return _refused(
        {
            "a number": lambda: data.TFRecordDataset(5),
            "numbers": lambda: data.TextLineDataset([5]),
            "a dataset of numbers": lambda: data.TextLineDataset(data.Dataset.range(2)),
            "reads": lambda: data.TextLineDataset(["a"], num_parallel_reads="x"),
            "no reads": lambda: data.TextLineDataset(["a"], num_parallel_reads=0),
            "record_bytes": lambda: data.FixedLengthRecordDataset("a", "x"),
            "list_files": lambda: data.Dataset.list_files(5),
            "list_files, None": lambda: data.Dataset.list_files(None),
        }
    )


@program()
def no_files_at_all(tf, tmp):
    return [
        both(tf.data.TFRecordDataset([])),
        both(tf.data.TextLineDataset([])),
        both(tf.data.FixedLengthRecordDataset([], 3)),
    ]


@program()
def errors_while_iterating(tf, tmp):
    dataset = tf.data.Dataset
    r = dataset.range(4)
    path = write(tmp, "eleven", bytes(11))
    unequal = dataset.from_generator(
        lambda: iter([(np.arange(2), np.arange(3))]),
        output_signature=(tf.TensorSpec([None], np.int64),) * 2,
    )
    counted = tf.data.experimental.assert_cardinality
    return [
        error(lambda: r.apply(counted(3))),
        error(lambda: r.apply(counted(5))),
        error(lambda: r.apply(counted(-1))),
        error(lambda: tf.data.FixedLengthRecordDataset(path, 5)),
        error(lambda: tf.data.FixedLengthRecordDataset(path, 5, 20)),
        error(lambda: dataset.choose_from_datasets([r], dataset.range(3, 5))),
        error(lambda: unequal.unbatch()),
        error(lambda: dataset.from_generator(lambda: None, np.int64)),
        error(lambda: r.scan(0, lambda s, x: s)),
        error(lambda: r.scan(0, lambda s, x: (x, x))),
    ]


@program()
def weights_for_each_draw(tf, tmp):
    dataset = tf.data.Dataset
    inputs = [dataset.range(n, n + 5) for n in (0, 10, 20)]
    turns = np.eye(3, dtype=np.float32)[[2, 0, 1, 1, 2, 2]]
    weights = dataset.from_tensor_slices(turns * 7)
    return [
        both(dataset.sample_from_datasets(inputs, weights)),
        both(dataset.sample_from_datasets(inputs, [0.0, 0.0, 0.0])),
    ]


@program()
def floats_in_lists(tf, tmp):
    single, double, half = np.float32, np.float64, np.float16
    return [
        spec(tf.data.Dataset.from_tensors(values).element_spec)
        for values in (
            [single(1), 2.0],
            [2.0, single(1)],
            [[single(1), 2.0], [3.0, 4.0]],
            [double(1), 2.0],
            [2.0, double(1)],
            [half(1), 2.0],
            [single(1), double(2)],
            [np.int64(1), 2.5],
            [single(1), 2],
            [np.ones(2, single), np.ones(2, double)],
            [np.ones(2, np.int64), np.ones(2, single)],
            [],
            [[]],
        )
    ]


@program()
def options_of_other_types(tf, tmp):
    values = {
        "None": None,
        "True": True,
        "1": 1,
        "1.5": 1.5,
        "text": "x",
        "list": [1],
        "policy": tf.data.experimental.AutoShardPolicy.OFF,
        "threading": tf.data.ThreadingOptions(),
        "distribute": tf.data.experimental.DistributeOptions(),
    }
    fields = [
        (tf.data.Options, "deterministic"),
        (tf.data.Options, "dataset_name"),
        (tf.data.Options, "experimental_distribute"),
        (tf.data.Options, "threading"),
        (tf.data.Options, "framework_type"),
        (tf.data.ThreadingOptions, "private_threadpool_size"),
        (tf.data.experimental.DistributeOptions, "auto_shard_policy"),
        (tf.data.experimental.DistributeOptions, "num_devices"),
        (tf.data.experimental.AutotuneOptions, "enabled"),
        (tf.data.experimental.AutotuneOptions, "cpu_budget"),
        (tf.data.experimental.OptimizationOptions, "map_fusion"),
    ]
    return {
        f"{kind.__name__}.{name}": {
            told: error(lambda k=kind, n=name, v=value: setattr(k(), n, v))
            for told, value in values.items()
        }
        for kind, name in fields
    }


@program()
def options_of_several_inputs(tf, tmp):
    dataset = tf.data.Dataset
    one, two = tf.data.Options(), tf.data.Options()
    one.deterministic, two.deterministic = True, False
    one.threading.private_threadpool_size = 3
    r = dataset.range(3)
    a, b = r.with_options(one), r.with_options(two)
    merged = one.merge(two)
    return [
        merged.deterministic,
        merged.threading.private_threadpool_size,
        one.deterministic,
        error(lambda: one.merge(None)),
        dataset.zip((a, b)).options().deterministic,
        dataset.zip((b, a)).options().deterministic,
        a.concatenate(b).options().deterministic,
        dataset.choose_from_datasets([a, b], dataset.range(2)).options().deterministic,
        dataset.zip((a, b)).with_options(one).options().deterministic,
        a.with_options(two).options().deterministic,
    ]


@program()
def specs_that_are_special_cases(tf, tmp):
    s = tf.TensorSpec
    pairs = [
        (s([1]), s([None])),
        (s([None]), s([1])),
        (s([1]), s(None)),
        (s(None), s([1])),
        (s([1]), s([1], np.int32)),
        (s([1], name="a"), s([1])),
        (s([1]), s([1], name="a")),
        (s([1, 2]), s([1])),
    ]
    return {
        "subtype": [a.is_subtype_of(b) for a, b in pairs],
        "compatible": [a.is_compatible_with(b) for a, b in pairs],
        "text": [spec(s([], t)) for t in (np.str_, np.bytes_, tf.string, object)],
        "types": [
            spec(s([], getattr(tf, name)))
            for name in ("float16", "bfloat16", "int8", "uint32", "bool", "complex64")
        ],
        "copy": spec(s.from_spec(s([2], np.int8, "a"))),
    }


@program()
def functions_for_apply(tf, tmp):
    dataset, ex = tf.data.Dataset, tf.data.experimental
    path = str(tmp / "saved")
    ex.save(dataset.range(3), path)
    iterator = iter(dataset.range(3).batch(2).take(1))
    found, missing = (ex.get_next_as_optional(iterator) for _ in range(2))
    return [
        both(dataset.range(3).apply(ex.enumerate_dataset(3))),
        both(dataset.range(3).batch(2).apply(ex.unbatch())),
        both(dataset.range(2).repeat(2).apply(ex.unique())),
        both(dataset.range(9).apply(ex.take_while(lambda x: x < 3))),
        both(dataset.range(4).apply(ex.scan(np.int64(0), lambda s, x: (s + x, s)))),
        both(
            dataset.range(5).apply(
                ex.group_by_window(lambda x: x % 2, lambda _, w: w.batch(2), 2)
            )
        ),
        elements(ex.load(path)),
        elements(ex.Counter(3, 2).take(3)),
        elements(
            ex.choose_from_datasets(
                [dataset.range(2), dataset.range(10, 13)],
                dataset.from_tensor_slices(np.array([0, 0, 0, 1, 1])),
            )
        ),
        int(ex.get_single_element(dataset.range(7, 8))),
        [bool(found.has_value()), spec(found.element_spec)],
        [bool(missing.has_value()), spec(missing.element_spec)],
    ]
