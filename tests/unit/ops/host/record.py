"""Records what TensorFlow gives for calls in functions of datasets.

`python -m tests.unit.ops.host.record` writes `recorded.json` where TensorFlow is
installed. The calls are for what JAX computes otherwise: numbers of 64 bits, types that
do not fit together, and text.
"""

import json
import pathlib

import numpy as np

# In a call these are elements of a dataset.
ELEMENTS = {
    "U": np.array([200, 250], np.uint8),
    "I": np.array([7, -2], np.int32),
    "L": np.array([2**40 + 3, -5], np.int64),
    "H": np.array([2**62, 2**62], np.int64),
    "F": np.array([1.5, -0.25], np.float32),
    "D": np.array([1e300, 0.1], np.float64),
    "M": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "E": np.zeros((0, 2), np.int64),
    "S": np.array([b"ab", b"c"], object),
}
_PAIRS = [f"tf.add({x}, {y})" for x in "UILFD" for y in "UILFD"]
_NUMBERS = [
    f"tf.multiply({x}, {y})"
    for x in "UILFD"
    for y in ("3", "1.5", "True", "[2, 3]", "[0.5, 2.0]", "np.int32(2)", "2j", "'a'")
    # TensorFlow's functions refuse or cut off what this library refuses or converts.
    if (x, y) not in {("U", "True"), ("L", "True")}
]
CALLS = [
    *_PAIRS,
    *_NUMBERS,
    # Arithmetic of 8 and 64 bits.
    "tf.add(U, U)", "tf.subtract(U, U[::-1])", "tf.multiply(L, L)", "tf.divide(U, 255)",
    "tf.divide(I, 2)", "tf.divide(L, 3)", "tf.divide(I, 0)", "tf.math.floordiv(I, 0)",
    "tf.math.floordiv(L, 7)", "tf.math.floordiv(F * np.inf, 2.0)",
    "tf.math.floormod(L, 7)", "tf.math.floormod(I, 0)",
    "tf.truncatediv(L, 7)", "tf.pow(L, 2)", "tf.abs(L)", "tf.maximum(U, 210)",
    "tf.square(U)", "tf.sign(L)", "tf.negative(D)", "tf.sqrt(D)", "tf.exp(D)",
    "tf.math.log(D)", "tf.greater(L, 2**40)", "tf.equal(L, 2**40 + 3)",
    "tf.equal(I, F)", "tf.less(U, 210)", "tf.cast(U, tf.float32) / 255.0",
    "tf.math.divide_no_nan(F, 0.0)",
    # Conversions and new arrays.
    "tf.cast(L, tf.int32)", "tf.cast(L, tf.float64)", "tf.cast(I, tf.int64)",
    "tf.cast(F, tf.uint16)", "tf.cast(D, tf.float32)", "tf.cast(U, tf.bool)",
    "tf.cast(U, float)", "tf.cast(S, tf.float32)", "tf.saturate_cast(L, tf.int32)",
    "tf.saturate_cast(F, tf.uint8)", "tf.constant(2**40)", "tf.constant([1, 2**40])",
    "tf.constant(0.1, tf.float64)", "tf.constant(7, tf.int64)", "tf.constant('ab')",
    "tf.constant(np.array([0.1]))", "tf.constant(1.5, tf.int32)",
    "tf.constant(F, tf.float64)", "tf.convert_to_tensor(F, tf.float64)",
    "tf.convert_to_tensor([L, L])", "tf.constant([])", "tf.zeros([2], tf.int64)",
    "tf.ones([2], tf.float64)", "tf.zeros_like(L)", "tf.ones_like(S)",
    "tf.zeros_like(S)", "tf.fill([2], 2**40)", "tf.fill([2], 'a')",
    "tf.eye(2, dtype=tf.float64)", "tf.range(L[0], L[0] + 3)",
    "tf.range(3, dtype=tf.int64)", "tf.range(0.0, 1.0, 0.25)", "tf.linspace(0, 1, 5)",
    "tf.linspace(D[1], 1.0, 3)", "tf.one_hot(I, 8)", "tf.one_hot(M, 4, dtype=tf.int64)",
    "tf.identity(L)", "tf.shape(M)", "tf.shape(M, tf.int64)", "tf.size(E)",
    "tf.rank(M)",
    # Reductions.
    "tf.reduce_sum(U)", "tf.reduce_sum(L)", "tf.reduce_mean(U)", "tf.reduce_mean(H)",
    "tf.reduce_mean(D)", "tf.reduce_max(L)", "tf.reduce_min(E)", "tf.reduce_prod(I)",
    "tf.reduce_sum(E, 0)", "tf.argmax(L)", "tf.argmin(M, 1)", "tf.argmax(E, 0)",
    "tf.cumsum(L)", "tf.math.cumprod(U)", "tf.math.reduce_std(D[1:])",
    "tf.math.count_nonzero(M)", "tf.reduce_any(tf.equal(L, -5))", "tf.reduce_any(L)",
    "tf.argmax(S)", "tf.reduce_sum(S)",
    # Shapes and positions.
    "tf.reshape(M, [3, -1])", "tf.expand_dims(L, -1)", "tf.squeeze(L[None])",
    "tf.transpose(M)", "tf.concat([L, L], 0)", "tf.concat([L, I], 0)",
    "tf.concat([L, [1, 2]], 0)", "tf.stack([L, H])", "tf.stack([S, S])",
    "tf.unstack(M)", "tf.split(M, 3, 1)", "tf.tile(L, [2])", "tf.pad(L, [[1, 2]])",
    "tf.pad(M, [[0, 1], [1, 0]], constant_values=9)", "tf.pad(S, [[1, 0]])",
    "tf.pad(M, [[1, 1], [1, 1]], 'REFLECT')", "tf.pad(M, [[1, 1]])", "tf.repeat(L, 2)",
    "tf.reverse(M, [1])", "tf.roll(M, 1, 1)", "tf.slice(M, [0, 1], [2, 2])",
    "tf.strided_slice(M, [0, 0], [2, 3], [1, 2])", "tf.broadcast_to(L, [2, 2])",
    "tf.gather(L, [1, 0])", "tf.gather(S, 1)", "tf.gather(L, 5)", "tf.gather(L, -1)",
    "tf.gather_nd(M, [[1, 2]])", "tf.boolean_mask(L, [True, False])", "tf.where(L > 0)",
    "tf.where(L > 0, L, 0)", "tf.where(U > 210, U, I)",
    "tf.where(tf.equal(S, 'c'), 'x', S)", "tf.clip_by_value(L, 0, 2**41)", "tf.sort(L)",
    "tf.argsort(L, direction='DESCENDING')", "tf.unique(L)", "tf.unique(S)",
    "tf.math.top_k(L, 1)", "tf.searchsorted(tf.sort(L), L, out_type=tf.int64)",
    "tf.tensor_scatter_nd_add(L, [[0], [0]], [1, 1])", "tf.reshape(S, [2, 1])",
    "tf.equal(S, 'c')", "tf.reshape(M, [4])",
    # Products.
    "tf.matmul(L[None], L[:, None])", "tf.tensordot(L, L, 1)",
    "tf.einsum('i,i->', D, D)", "tf.norm(D[1:])", "tf.nn.relu(L)",
    "tf.nn.softmax(D[1:])", "tf.sigmoid(D)", "tf.matmul(M, M)",
]  # fmt: skip


def compute(tf, call):
    """Returns what a call gives in a function of a dataset."""
    names = list(ELEMENTS)

    def function(*given):
        made = eval(call, {"tf": tf, "np": np, **dict(zip(names, given))})
        return made if isinstance(made, (list, tuple)) else (made,)

    given = tf.data.Dataset.from_tensors(tuple(ELEMENTS.values()))
    return next(iter(given.map(function)))


def record(tf, call):
    """Returns the type, shape and values of each result, or the name of the error."""
    try:
        found = compute(tf, call)
    except Exception as error:
        return type(error).__name__
    return [[x.dtype.name, list(x.shape), encode(np.asarray(x))] for x in found]


def encode(x):
    """Returns the elements of an array as JSON has them."""
    return [v.decode() if isinstance(v, bytes) else v for v in x.reshape(-1).tolist()]


def main():
    """Writes the recording."""
    import tensorflow as tf

    rows = {call: record(tf, call) for call in dict.fromkeys(CALLS)}
    lines = [f"{json.dumps(call)}: {json.dumps(row)}" for call, row in rows.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    pathlib.Path(__file__).with_name("recorded.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
