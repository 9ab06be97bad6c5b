"""The expressions of operators whose results in TensorFlow are recorded.

`T(values, dtype)` is a tensor, an element of a dataset here; so are `x` and `y`.
`python -m tests.unit.foundation.operator_cases` writes `recorded_operators.json` where
TensorFlow is installed.
"""

import json
import pathlib

import numpy as np

RECORDED = pathlib.Path(__file__).parent / "recorded_operators.json"
DTYPES = ["bool", "uint8", "int8", "uint32", "int32", "int64", "float32", "complex64"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<", ">=", "==", "!="]
OTHERS = [
    "2", "-3", "300", "2.5", "0", "[1, 2, 300]", "y", "T(2, 'int64')",
    "T(2, 'float32')", "y[:2]", "np.array([1, 2, 300])", "np.float64(1.5)",
]  # fmt: skip
SINGLE = """
T([-7, 8], 'int32') // 2
T([-7, 8], 'int32') % -3
T([1.0, -1.0, 5.5], 'float32') // 0.1
T([float('inf'), -1, 0], 'float32') // 2
T([-7.5, 8], 'float32') % 3
T([], 'int32') // 0
T([], 'int32') ** -1
T(-128, 'int8') // -1
T(3, 'int32') + 4
T(3, 'uint8') / 2
T([1, 3], 'int16') / 2
T([1, 3], 'uint16') / 2
T([1, 3], 'uint64') / 2
T([1, 3], 'float16') / 3
T([1, 3], 'float64') * 0.1
[2, 3] - T([1, 2], 'int32')
T([[1], [3]], 'float32') * T([1, 2, 7], 'float32')
T([1, 2], 'int32') == None
T([1, 2], 'int32') != None
T([1, 2], 'int32') + 2**31
T([1, 2], 'int32') + 2**64
T([1, 2], 'int32') + [[1], [2, 3]]
T(['a', 'b'], 'string') + 'c'
'c' + T(['a', 'b'], 'string')
T(['a', 'b'], 'string') == 'a'
T(['a', 'b'], 'string') == T(['a', 'c'], 'string')
T(['a', 'b'], 'string') * 2
T(['a', 'b'], 'string') < 'b'
T([[1, 2], [3, 4]], 'float32') @ T([[1, 2], [3, 4]], 'float32')
T([[1, 2], [3, 4]], 'float32') @ [[1, 2], [3, 4]]
[[1, 2], [3, 4]] @ T([[1, 2], [3, 4]], 'int32')
T([[1, 2], [3, 4]], 'float32') @ T([1, 2], 'float32')
T([[1, 2], [3, 4]], 'float32') @ T([[1, 2, 3]], 'float32')
T([[1, 2], [3, 4]], 'float32') @ T([[1, 2], [3, 4]], 'float64')
T([1, 2, 7], 'int32')[-1]
T([1, 2, 7], 'int32')[1:9]
T([1, 2, 7], 'int32')[::-1]
T([1, 2, 7], 'int32')[..., None]
T([1, 2, 7], 'int32')[None, ::2]
T([1, 2, 7], 'int32')[T(1, 'int64')]
T([1, 2, 7], 'int32')[T([True, False, True], 'bool')]
T([1, 2, 7], 'int32')[5]
T([1, 2, 7], 'int32')[-4]
T([1, 2, 7], 'int32')[0, 0]
T([1, 2, 7], 'int32')[::0]
T([1, 2, 7], 'int32')[1.0]
T(3, 'int32')[0]
len(T([1, 2, 7], 'int32'))
len(T(3, 'int32'))
[x + 1 for x in T([1, 2], 'int32')][1]
list(T(3, 'int32'))
bool(T([2], 'int32'))
bool(T([1, 2], 'int32'))
int(T(3.7, 'float32'))
range(4)[T(2, 'int32')]
2 in T([1, 2], 'int32')
""".strip().splitlines()


def expressions():
    """Yields every expression, with the type of `x` and `y` in it."""
    for d in DTYPES:
        for operator in BINARY:
            for other in OTHERS:
                yield f"x {operator} {other}", d
        for operator in BINARY:
            yield f"3 {operator} x", d
        yield from ((text, d) for text in ("-x", "abs(x)", "~x"))
    yield from ((text, "int32") for text in SINGLE)


def evaluate(text, d, tensor, errors):
    """Returns [type, shape, values] of an expression, or None for an error."""
    is_bool = d == "bool"
    x = tensor([True, False, True] if is_bool else [1, 2, 7], d)
    y = tensor([True, True, False] if is_bool else [1, 2, 4], d)
    names = {"T": tensor, "np": np, "x": x, "y": y}
    try:
        with np.errstate(all="ignore"):
            found = eval(text, names)
    except errors:
        return None
    plain = np.asarray(found.numpy() if hasattr(found, "numpy") else found)
    told = [str(v) for v in plain.ravel().tolist()]
    return [plain.dtype.name, list(plain.shape), told]


def main():
    """Writes the recording, one line for each type."""
    import tensorflow as tf

    rows = {}
    for text, d in expressions():
        rows.setdefault(d, {})[text] = evaluate(text, d, tf.constant, Exception)
    lines = [
        f"{json.dumps(d)}: {json.dumps(row, separators=(',', ':'))}"
        for d, row in rows.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
