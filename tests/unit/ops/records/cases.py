"""Calls of TensorFlow's functions of records whose results are recorded.

In a call `tf` is the library, `ex` makes a record with an `Example`, and `seq` one with
a `SequenceExample`. Both take lists of integers, floats or bytes; 'int64' is an empty
list of integers, and None a feature without a list.
"""

import base64
import pathlib

import numpy as np


def make_names(tf):
    """Returns the names that calls use."""

    lists = {
        "bytes": tf.train.BytesList,
        "float": tf.train.FloatList,
        "int64": tf.train.Int64List,
    }

    def feature(values):
        if values is None:
            return tf.train.Feature()
        if isinstance(values, str):
            return tf.train.Feature(**{f"{values}_list": lists[values]()})
        kind = {bytes: "bytes", float: "float", int: "int64"}[type(values[0])]
        return tf.train.Feature(**{f"{kind}_list": lists[kind](value=values)})

    def features(found):
        return tf.train.Features(
            feature={key: feature(value) for key, value in found.items()}
        )

    def ex(**found):
        return tf.train.Example(features=features(found)).SerializeToString()

    def seq(context=None, **steps):
        return tf.train.SequenceExample(
            context=features(context or {}),
            feature_lists=tf.train.FeatureLists(
                feature_list={
                    key: tf.train.FeatureList(feature=[feature(v) for v in value])
                    for key, value in steps.items()
                }
            ),
        ).SerializeToString()

    return {
        "F": tf.io.FixedLenFeature,
        "S": tf.io.FixedLenSequenceFeature,
        "V": tf.io.VarLenFeature,
        "b64": base64.b64decode,
        "ex": ex,
        "np": np,
        "one": tf.io.parse_single_example,
        "many": tf.io.parse_example,
        "one_seq": tf.io.parse_single_sequence_example,
        "many_seq": tf.io.parse_sequence_example,
        "pathlib": pathlib,
        "seq": seq,
        "tf": tf,
    }


_READ = (
    # One value, with and without a default.
    "{f}(ex(x=[3]), {x: F([], tf.int64)})",
    "{f}(ex(x=[2.5]), {x: F([], tf.float32)})",
    "{f}(ex(x=[b'a\\0']), {x: F([], tf.string)})",
    "{f}(ex(x=[9223372036854775807]), {x: F([], tf.int64)})",
    "{f}(ex(x=[-9223372036854775808]), {x: F([1], tf.int64)})",
    "{f}(ex(), {x: F([], tf.int64, 7)})",
    "{f}(ex(), {x: F([], tf.float32, 7)})",
    "{f}(ex(), {x: F([], tf.string, 'é')})",
    "{f}(ex(), {x: F([], tf.string, b'')})",
    "{f}(ex(), {x: F([2], tf.int64, [7, 8])})",
    "{f}(ex(), {x: F([2, 1], tf.float32, [[7], [8]])})",
    "{f}(ex(), {x: F([1], tf.int64, 7)})",
    "{f}(ex(), {x: F([2], tf.int64, 7)})",
    "{f}(ex(), {x: F([2], tf.int64, [7])})",
    "{f}(ex(), {x: F([], tf.int64, 1.5)})",
    "{f}(ex(), {x: F([], tf.int64, 'a')})",
    "{f}(ex(), {x: F([], tf.string, 3)})",
    "{f}(ex(), {x: F([], tf.int64)})",
    "{f}(ex(), {x: F([0], tf.int64)})",
    "{f}(ex(x='int64'), {x: F([0], tf.int64)})",
    "{f}(ex(x='float'), {x: F([0], tf.int64)})",
    "{f}(ex(x='int64'), {x: F([], tf.int64, 4)})",
    "{f}(ex(x=None), {x: F([], tf.int64, 4)})",
    "{f}(ex(x=None), {x: F([], tf.int64)})",
    # Several values, and other numbers of them than were asked for.
    "{f}(ex(x=[1, 2, 3, 4, 5, 6]), {x: F([2, 3], tf.int64)})",
    "{f}(ex(x=[b'a', b'', b'c', b'd']), {x: F((2, 2), tf.string)})",
    "{f}(ex(x=[1.5, 2.5]), {x: F(2, tf.float32)})",
    "{f}(ex(x=[1, 2]), {x: F([], tf.int64)})",
    "{f}(ex(x=[1]), {x: F([2], tf.int64)})",
    "{f}(ex(x=[1, 2]), {x: F([], tf.int64, 5)})",
    # Another type than was asked for.
    "{f}(ex(x=[b'a']), {x: F([], tf.int64)})",
    "{f}(ex(x=[1]), {x: F([], tf.float32)})",
    "{f}(ex(x=[1.0]), {x: F([], tf.string)})",
    "{f}(ex(x=[1.0]), {x: F([], tf.string, 'a')})",
    "{f}(ex(x=[1.0]), {x: V(tf.int64)})",
    "{f}(ex(x='float'), {x: V(tf.int64)})",
    "{f}(ex(x=[b'a']), {x: S([], tf.int64, True)})",
    # Lists of any length.
    "{f}(ex(x=[1, 2, 3]), {x: V(tf.int64)})",
    "{f}(ex(x=[1.5, 0.0]), {x: V(tf.float32)})",
    "{f}(ex(x=[b'a', b'bc']), {x: V(tf.string)})",
    "{f}(ex(x='int64'), {x: V(tf.int64)})",
    "{f}(ex(), {x: V(tf.string)})",
    "{f}(ex(x=[1, 2, 3, 4]), {x: S([], tf.int64, allow_missing=True)})",
    "{f}(ex(x=[1, 2, 3, 4]), {x: S([2], tf.int64, allow_missing=True)})",
    "{f}(ex(x=[1, 2, 3]), {x: S([2], tf.int64, allow_missing=True)})",
    "{f}(ex(), {x: S([2, 3], tf.float32, allow_missing=True)})",
    "{f}(ex(), {x: S([], tf.string, True, 'none')})",
    "{f}(ex(x=[1]), {x: S([], tf.int64)})",
    # Several features, and more in the record than were asked for.
    "{f}(ex(x=[1], y=[b'b'], z=[0.5]), {x: F([], tf.int64), y: F([], tf.string)})",
    "{f}(ex(x=[1]), {x: F([], tf.int64), y: V(tf.string), z: F([1], tf.int64, [2])})",
    # Wrong arguments.
    "{f}(ex(x=[1]), {})",
    "{f}(ex(x=[1]), None)",
    "{f}(ex(x=[1]), {x: F(None, tf.int64)})",
    "{f}(ex(x=[1]), {x: F([None], tf.int64)})",
    "{f}(ex(x=[1]), {x: F([-1], tf.int64)})",
    "{f}(ex(x=[1]), {x: F([], None)})",
    "{f}(ex(x=[1]), {x: F([], tf.int32)})",
    "{f}(ex(x=[1]), {x: F([], tf.bool)})",
    "{f}(ex(x=[1]), {x: V(tf.int32)})",
    "{f}(ex(x=[1]), {x: V(None)})",
    "{f}(ex(x=[1]), {x: tf.int64})",
    "{f}(ex(x=[1]), {3: F([], tf.int64)})",
    "{f}(5, {x: F([], tf.int64)})",
    "{f}([[ex(x=[1])]], {x: F([], tf.int64)})",
    # Damaged records.
    "{f}(b'', {x: F([], tf.int64)})",
    "{f}(b'', {x: F([], tf.int64, 3)})",
    "{f}(b'junk', {x: F([], tf.int64, 3)})",
    "{f}(ex(x=[1, 2, 3])[:-1], {x: V(tf.int64)})",
    "{f}(b'\\x0a\\xff\\xff\\xff\\xff\\x7f', {x: V(tf.int64)})",
)

_BATCHES = (
    "many([ex(x=[1]), ex(x=[2]), ex(x=[3])], {x: F([], tf.int64)})",
    "many([ex(x=[1, 2]), ex(x=[3, 4])], {x: F([2, 1], tf.int64)})",
    "many([ex(x=[1.5, 2.0]), ex()], {x: F([2], tf.float32, [7, 8])})",
    "many([ex(x=[b'a']), ex(x=[b'bc'])], {x: F([], tf.string)})",
    "many([ex(x=[b'a', b'']), ex()], {x: F([2], tf.string, ['p', 'q'])})",
    "many([ex(x=[1]), ex()], {x: F([], tf.int64)})",
    "many([ex(x=[1]), ex(x=[1, 2])], {x: F([], tf.int64)})",
    "many([ex(x=[1]), ex(x=[b'a'])], {x: F([], tf.int64)})",
    "many([ex(x=[1]), b'junk'], {x: F([], tf.int64, 3)})",
    "many([ex(x=[1]), ex(x=[2, 3, 4]), ex()], {x: V(tf.int64)})",
    "many([ex(x=[b'a']), ex(x=[b'', b'c'])], {x: V(tf.string)})",
    "many([ex(), ex()], {x: V(tf.float32)})",
    "many([ex(x=[1]), ex(x=[2, 3])], {x: S([], tf.int64, True)})",
    "many([ex(x=[1]), ex(x=[2, 3])], {x: S([], tf.int64, True, -1)})",
    "many([ex(x=[1., 2.]), ex(x=[2., 3., 4., 5.]), ex()], {x: S([2], tf.float32, 1)})",
    "many([ex(x=[b'a']), ex()], {x: S([], tf.string, True, 'none')})",
    "many([ex(x=[1]), ex(x=[2, 3])], {x: S([], tf.int64, True, [-1])})",
    "many([ex(x=[1]), ex(x=[2, 3])], {x: S([2], tf.int64, True, [-1, -2])})",
    "many(np.array([ex(x=[1]), ex(x=[2])], object), {x: F([], tf.int64)})",
    "many(np.array([], object), {x: F([], tf.int64)})",
    "many(np.array([], object), {x: F([2, 3], tf.string)})",
    "many(np.array([], object), {x: V(tf.float32)})",
    "many(np.array([], object), {x: S([3], tf.int64, True)})",
    "many([ex(x=[1])], {x: F([], tf.int64)}, example_names=['first'])",
    "one([ex(x=[1])], {x: F([], tf.int64)})",
)

_C = "{c: F([], tf.int64)}"
_SEQUENCES = (
    "one_seq(seq({c: [4]}, x=[[1], [2], [3]]), " + _C + ", {x: S([], tf.int64)})",
    "one_seq(seq({c: [4]}), " + _C + ")",
    "one_seq(seq(x=[[1, 2], [3, 4]]), None, {x: S([2], tf.int64)})",
    "one_seq(seq(x=[[1.5, 2.0, 3.0, 4.0]]), None, {x: S([2, 2], tf.float32)})",
    "one_seq(seq(x=[[b'a'], [b'bc']]), None, {x: S([], tf.string)})",
    "one_seq(seq(x=[]), None, {x: S([], tf.int64)})",
    "one_seq(seq(), None, {x: S([], tf.int64)})",
    "one_seq(seq(), None, {x: S([2], tf.int64, allow_missing=True)})",
    "one_seq(seq(x=[[1], [1, 2]]), None, {x: S([], tf.int64)})",
    "one_seq(seq(x=[[1], [b'a']]), None, {x: S([], tf.int64)})",
    "one_seq(seq(x=[[1], None]), None, {x: S([], tf.int64)})",
    "one_seq(seq(x=[[1], [2, 3], 'int64']), None, {x: V(tf.int64)})",
    "one_seq(seq(x=[[b'a'], None]), None, {x: V(tf.string)})",
    "one_seq(seq(), None, {x: V(tf.float32)})",
    "one_seq(seq(x=[[1.0]]), None, {x: V(tf.int64)})",
    "one_seq(seq(), {c: F([2], tf.float32, [1, 2]), d: V(tf.int64)})",
    "one_seq(seq(), " + _C + ")",
    "one_seq(seq(), {c: S([], tf.int64, True)})",
    "one_seq(seq(x=[[1]]), None, {x: F([], tf.int64)})",
    "one_seq(seq(x=[[1]]))",
    "one_seq(b'junk', None, {x: S([], tf.int64)})",
    "one_seq([seq(x=[[1]])], None, {x: S([], tf.int64)})",
    "many_seq([seq({c: [4]}, x=[[1], [2]]), seq({c: [5]}, x=[[3]])], "
    + _C
    + ", {x: S([], tf.int64)})",
    "many_seq([seq(x=[[1.0, 2.0]]), seq()], None, {x: S([2], tf.float32, True)})",
    "many_seq([seq(x=[[1.0, 2.0]]), seq()], None, {x: S([2], tf.float32)})",
    "many_seq([seq(x=[[1], [2, 3]]), seq(x=[[4]]), seq()], None, {x: V(tf.int64)})",
    "many_seq([seq(x=[[b'a']]), seq(x=[[b'b'], [b'c']])], None, {x: S([], tf.string)})",
    "many_seq([seq(x=[[1]]), seq(x=[])], None, {x: S([], tf.int64, True, -1)})",
    "one_seq(seq(x=[[1], None]), None, {x: S([], tf.int64, True, -1)})",
    "one_seq(seq(x=[[1], 'int64']), None, {x: S([], tf.int64, True, -1)})",
    "many_seq([seq({c: [4]})], " + _C + ")",
    "many_seq(seq({c: [4]}), " + _C + ")",
    "many_seq([seq({c: [4]}), b'junk'], " + _C + ")",
)

_TYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_TENSORS = (
    "tf.io.serialize_tensor(tf.cast([[1, 0, 3]], tf.bfloat16))",
    *(f"tf.io.serialize_tensor(np.array([[1, 0, 3]], {t!r}))" for t in _TYPES),
    *(
        f"tf.io.parse_tensor(tf.io.serialize_tensor(np.array([[1, 0]], {t!r})), tf.{t})"
        for t in _TYPES
    ),
    "tf.io.serialize_tensor(3.5)",
    "tf.io.serialize_tensor('text')",
    "tf.io.serialize_tensor([b'a\\0', b''])",
    "tf.io.serialize_tensor(np.zeros([0, 3], 'int16'))",
    "tf.io.parse_tensor(tf.io.serialize_tensor([b'a', b'']), tf.string)",
    "tf.io.parse_tensor(tf.io.serialize_tensor('text'), tf.string)",
    "tf.io.parse_tensor(tf.io.serialize_tensor(np.zeros([0, 3])), tf.float64)",
    "tf.io.parse_tensor(tf.io.serialize_tensor(3.5), tf.float64)",
    "tf.io.parse_tensor(tf.io.serialize_tensor(3.5), 'float32')",
    "tf.io.parse_tensor(b'', tf.float32)",
    "tf.io.parse_tensor(b'junk', tf.float32)",
    "tf.io.parse_tensor(tf.io.serialize_tensor(np.ones(2))[:-1], tf.float64)"
    .replace("[:-1]", ".numpy()[:-1]"),
    "tf.io.parse_tensor([tf.io.serialize_tensor(3.5).numpy()], tf.float32)",
    # The typed fields, as `tf.make_tensor_proto` writes them; the last value fills up.
    *(f"tf.io.parse_tensor({wire!r}, tf.{t})" for wire, t in (
        (b"\x08\x01\x12\x04\x12\x02\x08\x03*\x08\x00\x00\x80?\x00\x00\x00@", "float32"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x03", "float32"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x01*\x08\x00\x00\x80?\x00\x00\x00@", "float32"),
        (b"\x08\x03\x12\x04\x12\x02\x08\x02:\x02\x05\x07", "int32"),
        (b"\x08\x04\x12\x04\x12\x02\x08\x02:\x03\xac\x02\x07", "uint8"),
        (b"\x08\x06\x12\x04\x12\x02\x08\x02:\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x07",
         "int8"),
        (b"\x08\x09\x12\x04\x12\x02\x08\x02R\x02\x05\x07", "int64"),
        (b"\x08\x0a\x12\x04\x12\x02\x08\x02Z\x02\x01\x00", "bool"),
        (b"\x08\x07\x12\x04\x12\x02\x08\x03B\x01aB\x01b", "string"),
        (b"\x08\x07\x12\x04\x12\x02\x08\x02", "string"),
        (b"\x08\x13\x12\x04\x12\x02\x08\x02j\x05\x80x\x80\x80\x01", "float16"),
        (b"\x08\x0e\x12\x04\x12\x02\x08\x01j\x02\x80\x7f", "bfloat16"),
        (b"\x08\x08\x12\x04\x12\x02\x08\x01J\x08\x00\x00\x80?\x00\x00\x00@",
         "complex64"),
        (b"\x08\x16\x12\x04\x12\x02\x08\x01\x82\x01\x01\x05", "uint32"),
        (b"\x08\x17\x12\x04\x12\x02\x08\x01\x8a\x01\x01\x05", "uint64"),
        # Shapes of no tensor.
        (b"\x08\x01\x12\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
         "float32"),
        (b"\x08\x01\x12\x02\x18\x01", "float32"),
        (b"\x08\x63\x12\x00", "float32"),
        (b"\x08\x01\x12\x04\x12\x02\x08\x02\x22\x03abc", "float32"),
    )),
)  # fmt: skip

_RAW = (
    "tf.io.decode_raw(b'abcd', tf.uint8)",
    "tf.io.decode_raw('abcd', tf.int16)",
    "tf.io.decode_raw(b'abcd', tf.int16, little_endian=False)",
    "tf.io.decode_raw(b'\\0\\0\\x80?', tf.float32)",
    "tf.io.decode_raw(b'?\\x80\\0\\0', tf.float32, False)",
    "tf.io.decode_raw(b'\\0\\0\\x80?', tf.bfloat16)",
    "tf.io.decode_raw(b'\\0\\1', tf.bool)",
    "tf.io.decode_raw(b'abcdefgh', tf.complex64)",
    "tf.io.decode_raw(b'abcdefgh', tf.complex64, False)",
    "tf.io.decode_raw(b'?\\x80\\0\\0', tf.bfloat16, False)",
    "tf.io.decode_raw(b'', tf.uint8)",
    "tf.io.decode_raw(b'', tf.float64)",
    "tf.io.decode_raw([b'', b''], tf.uint8)",
    "tf.io.decode_raw(b'abc', tf.int16)",
    "tf.io.decode_raw(b'abcd', tf.string)",
    "tf.io.decode_raw(b'abcd', tf.uint32)",
    "tf.io.decode_raw(b'abcdefgh', tf.uint64)",
    "tf.io.decode_raw([b'ab', b'cd'], tf.uint8)",
    "tf.io.decode_raw([[b'ab'], [b'cd']], tf.uint16)",
    "tf.io.decode_raw([b'ab', b'cde'], tf.uint8)",
    "tf.io.decode_raw(np.array([], object), tf.uint8)",
    "tf.io.decode_raw(b'abc', tf.uint8, fixed_length=5)",
    "tf.io.decode_raw(b'abc', tf.uint8, fixed_length=2)",
    "tf.io.decode_raw([b'abc', b'd', b''], tf.int16, fixed_length=4)",
    "tf.io.decode_raw([b'abc', b'd'], tf.int16, False, 4)",
    "tf.io.decode_raw(b'abc', tf.int16, fixed_length=3)",
    "tf.io.decode_raw(b'abc', tf.uint8, fixed_length=0)",
    "tf.io.decode_raw(b'abc', tf.uint8, fixed_length=-1)",
    "tf.io.decode_raw(np.array([], object), tf.uint8, fixed_length=4)",
    "tf.io.decode_raw(5, tf.uint8)",
)


def expand():
    """Yields every call."""
    for f in ("one", "many"):
        for call in _READ:
            yield call.replace("{f}", f)
    yield from (*_BATCHES, *_SEQUENCES, *_TENSORS, *_RAW)


def run(tf, call):
    """Returns what a call gives. In it the keys x, y, z, c and d are texts."""
    keys = {name: name for name in "xyzcd"}
    return eval(call, {**keys, **make_names(tf)})
