"""Behaviours that kernel tests of tf.data check: endless sources, zip, shuffle, errors."""

import numpy as np
import tensorflow as tf

D = tf.data.Dataset


def show(name, fn):
    try:
        out = fn()
        if isinstance(out, D):
            out = [
                tf.nest.map_structure(lambda v: np.asarray(v).tolist(), e)
                for e in out.take(20).as_numpy_iterator()
            ]
        print(name, out)
    except Exception as e:
        print(name, type(e).__name__)


c = D.counter()
zz = D.zip((c, c))
show("zip cc", lambda: zz.take(3))
show("zip map cc", lambda: D.zip((D.range(4).map(lambda x: x * 2), zz)))
show("zz batch", lambda: zz.batch(2).take(2))
show("zz skip", lambda: zz.skip(3).take(2))
show("zz shard", lambda: zz.shard(3, 1).take(2))
show("zz shuffle len", lambda: len(list(zz.shuffle(5, seed=1).take(7))))
show("zz repeat", lambda: zz.repeat(2).take(3))
show("zz concat", lambda: zz.take(2).concatenate(zz.take(1)))
show("zz window", lambda: [[int(x) for x in a] for a, b in zz.window(2).take(2)])
show("zz filter", lambda: zz.filter(lambda a, b: a % 2 == 1).take(2))
show(
    "zz card",
    lambda: (
        int(zz.cardinality()),
        int(zz.take(4).cardinality()),
        int(zz.batch(2).cardinality()),
        int(zz.skip(4).cardinality()),
        int(zz.shard(2, 0).cardinality()),
    ),
)
show("zz enumerate", lambda: zz.enumerate(5).take(2))
show("zz cache", lambda: zz.take(3).cache())
show(
    "zz interleave", lambda: D.range(2).interleave(lambda i: zz.take(2), cycle_length=2)
)
show("zz prefetch", lambda: zz.prefetch(2).take(2))
show("zz zip zz", lambda: D.zip((zz, D.range(2))))
show("zip dict", lambda: D.zip({"a": c, "b": D.range(2)}))
show("zip args", lambda: D.zip(c, D.range(2)))
show("c neg", lambda: D.counter(5, -2).take(3))
show(
    "c types",
    lambda: (
        D.counter(dtype=tf.int32).element_spec.dtype == tf.int32,
        D.range(3, output_type=tf.float32).element_spec.dtype == tf.float32,
    ),
)
show("c step0", lambda: D.counter(1, 0).take(2))
show("c shuffle batch", lambda: len(list(c.shuffle(3).batch(2).take(4))))
show("c map par", lambda: c.map(lambda x: x * 2, num_parallel_calls=3).take(3))
show("c scan", lambda: c.scan(np.int64(0), lambda s, x: (s + x, s)).take(4))
show("c unbatch", lambda: c.batch(3).unbatch().take(4))
show("c flat", lambda: c.flat_map(lambda x: D.range(x)).take(6))
show("c takew", lambda: c.take_while(lambda x: x < 3))
show("repeat0", lambda: D.range(3).repeat(0))
show("take0", lambda: D.range(3).take(0))
show("take-1", lambda: D.range(3).take(-1))
show("skip-1", lambda: D.range(3).skip(-1))
show("skip9", lambda: D.range(3).skip(9))
show("batch0", lambda: D.range(3).batch(0))
show("batch neg", lambda: D.range(3).batch(-1))
show("shard bad", lambda: D.range(3).shard(2, 2))
show("shard neg", lambda: D.range(3).shard(0, 0))
show("shuffle0", lambda: D.range(3).shuffle(0))
show("range0", lambda: D.range(0))
show("range step", lambda: D.range(10, 2, -3))
show("range step0", lambda: D.range(1, 5, 0))
show("uneven batch", lambda: D.from_generator(lambda: [[1], [2, 3]], tf.int32).batch(2))
show(
    "padded bad",
    lambda: D.from_generator(
        lambda: [[1], [2, 3, 4]], tf.int32, output_shapes=[None]
    ).padded_batch(2, padded_shapes=[2]),
)
show(
    "padded dict",
    lambda: D.from_tensor_slices({"a": [[1], [2]], "b": [1.0, 2.0]}).padded_batch(
        2, padded_shapes={"a": [3], "b": []}, padding_values={"a": -1, "b": 0.0}
    ),
)
show(
    "padded drop",
    lambda: (
        D.range(5).map(lambda x: tf.fill([x], x)).padded_batch(2, drop_remainder=True)
    ),
)
show(
    "padded str",
    lambda: D.from_tensor_slices([["a"], ["b"]]).padded_batch(
        2, padded_shapes=[2], padding_values="z"
    ),
)
show(
    "padded tf",
    lambda: (
        D.range(3)
        .map(lambda x: tf.fill([x], x))
        .padded_batch(2, padding_values=tf.constant(-1, tf.int64))
    ),
)
show("window", lambda: [[int(x) for x in w] for w in D.range(7).window(3, 2, 2, True)])
show("window0", lambda: D.range(7).window(0))
show("reduce empty", lambda: int(D.range(0).reduce(np.int64(7), lambda s, x: s + x)))
show("from slices uneven", lambda: D.from_tensor_slices(([1, 2], [1, 2, 3])))
show("from slices scalar", lambda: D.from_tensor_slices(3))
show("from tensors", lambda: D.from_tensors(([1, 2], 3.0)))
show(
    "gen sig",
    lambda: D.from_generator(
        lambda: iter([(1, "a"), (2, "b")]),
        output_signature=(tf.TensorSpec((), tf.int32), tf.TensorSpec((), tf.string)),
    ),
)
show(
    "gen bad type", lambda: D.from_generator(lambda: iter(["x"]), output_types=tf.int32)
)
show(
    "gen bad shape",
    lambda: D.from_generator(
        lambda: iter([[1, 2]]), output_types=tf.int32, output_shapes=[3]
    ),
)
show("map none", lambda: D.range(2).map(lambda x: (x, None)))
show("map str", lambda: D.range(2).map(lambda x: tf.strings.as_string(x)))
show(
    "map dict",
    lambda: D.from_tensor_slices({"a": [1, 2]}).map(lambda d: {**d, "b": d["a"] * 2}),
)
show("map tuple arity", lambda: D.zip((c, c)).map(lambda x: x).take(1))
show("filter bad", lambda: D.range(3).filter(lambda x: x))
show("unbatch", lambda: D.from_tensors({"a": [1, 2], "b": [[1.0], [2.0]]}).unbatch())
show("unbatch scalar", lambda: D.range(2).unbatch())
show("concat diff", lambda: D.range(2).concatenate(D.from_tensor_slices([1.0])))
show("concat struct", lambda: D.range(2).concatenate(D.zip((D.range(1), D.range(1)))))
show(
    "card",
    lambda: [
        int(x.cardinality())
        for x in (
            D.range(5).batch(2),
            D.range(5).batch(2, drop_remainder=True),
            D.range(5).repeat(3),
            D.range(5).flat_map(D.range),
            D.range(5).shuffle(2).take(3),
            D.range(5).interleave(D.range),
            D.from_generator(lambda: [1], tf.int32),
            D.range(5).window(2),
            D.range(7).shard(3, 0),
            D.range(7).shard(3, 2),
            D.range(3).cache(),
            D.range(0).repeat(),
        )
    ],
)
show("len", lambda: len(D.range(5)))
show("len inf", lambda: len(c))
show("len unk", lambda: len(D.range(3).filter(lambda x: True)))
show("bool", lambda: bool(D.range(0)))
show("apply", lambda: D.range(3).apply(lambda d: d.map(lambda x: x + 1)))
show("apply bad", lambda: D.range(3).apply(lambda d: 3))
show(
    "assert card", lambda: D.range(3).apply(tf.data.experimental.assert_cardinality(4))
)
show("shuffle seed", lambda: sorted(int(x) for x in D.range(9).shuffle(3, seed=5)))
ds = D.range(9).shuffle(9, seed=5, reshuffle_each_iteration=False)
show("same order", lambda: list(ds.as_numpy_iterator()) == list(ds.as_numpy_iterator()))
ds2 = D.range(9).shuffle(9, seed=5, reshuffle_each_iteration=True)
show(
    "other order",
    lambda: list(ds2.as_numpy_iterator()) == list(ds2.as_numpy_iterator()),
)
show(
    "bucket pad",
    lambda: D.from_generator(
        lambda: [[1], [1, 2], [1, 2, 3]], tf.int64, output_shapes=[None]
    ).bucket_by_sequence_length(
        lambda x: tf.shape(x)[0],
        [2],
        [1, 2],
        pad_to_bucket_boundary=False,
        padding_values=np.int64(9),
    ),
)
show(
    "choose",
    lambda: D.choose_from_datasets(
        [D.range(2), D.range(10, 12)],
        D.from_tensor_slices(np.int64([0, 1, 1, 0, 1])),
        stop_on_empty_dataset=True,
    ),
)
show(
    "sample",
    lambda: sorted(
        int(x)
        for x in D.sample_from_datasets(
            [D.range(2), D.range(10, 12)], weights=[0.5, 0.5], seed=1
        )
    ),
)
show("iter spec", lambda: iter(D.range(2)).element_spec == tf.TensorSpec((), tf.int64))
it = iter(D.range(2))
show(
    "optional", lambda: [bool(it.get_next_as_optional().has_value()) for _ in range(3)]
)
show("opt value", lambda: iter(D.range(0)).get_next_as_optional().get_value())
show("next end", lambda: next(iter(D.range(0))))
show("get_next end", lambda: iter(D.range(0)).get_next())
show(
    "group",
    lambda: D.range(8).group_by_window(
        lambda x: x % 3, lambda k, w: w.batch(10), window_size_func=lambda k: k + 1
    ),
)
show("rebatch", lambda: D.range(7).batch(3).rebatch([1, 2]))
show("unique", lambda: D.from_tensor_slices([3, 1, 3]).unique())
show(
    "flat gen",
    lambda: D.from_tensor_slices([[1, 2], [3, 4]]).flat_map(
        lambda x: D.from_tensor_slices(x)
    ),
)
show(
    "interleave bl",
    lambda: D.range(1, 4).interleave(
        lambda x: D.from_tensors(x).repeat(4), cycle_length=2, block_length=3
    ),
)
show("save", lambda: "x")
show("at", lambda: D.range(2).map(lambda x: (x, {"k": [x, x]})))
show("ragged list", lambda: D.range(2).map(lambda x: [x, x + 1]))
show("sparse none", lambda: D.range(5).batch(2).map(lambda x: tf.reduce_sum(x)))
show(
    "float16",
    lambda: D.from_tensor_slices(np.array([1.5], np.float16)).map(lambda x: x * 2),
)
show(
    "int div",
    lambda: D.range(5).map(lambda x: (x // 2, x / 2, x % 2, -x, abs(-x), x**2)),
)
show(
    "uint8",
    lambda: D.from_tensor_slices(np.array([250], np.uint8)).map(lambda x: x + 10),
)
show("py if", lambda: D.range(4).map(lambda x: x * 10 if x % 2 == 0 else x))
