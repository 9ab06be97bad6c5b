"""Records what TensorFlow gives for each call of `cases`, and its signatures.

`python -m tests.unit.ops.record` writes `recorded.json` where TensorFlow is installed.
"""

import inspect
import json
import pathlib

import numpy as np

from tests.unit.ops import cases

HERE = pathlib.Path(__file__).parent


def find(tf, path):
    """Returns the function of a path."""
    found = tf
    for part in path.split("."):
        found = getattr(found, part)
    return found


def signature(function):
    """Returns [name, kind, default] for each argument, defaults as text."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if default is inspect.Parameter.empty:
            text = ""
        elif hasattr(default, "as_numpy_dtype"):
            text = default.name
        else:
            text = repr(default)
        found.append([parameter.name, parameter.kind.name, text])
    return found


def number(x):
    """Returns a number as JSON has it."""
    if isinstance(x, complex):
        return [number(x.real), number(x.imag)]
    if isinstance(x, float):
        return (
            float(np.format_float_positional(np.float32(x)))
            if np.isfinite(x)
            else str(x)
        )
    return x


def encode(result):
    """Returns [type, shape, numbers] of a tensor, or a list of these."""
    if isinstance(result, (list, tuple)):
        return [encode(x) for x in result if x is not None]
    array = result.numpy()
    flat = np.asarray(array).reshape(-1)
    if result.dtype.name == "bfloat16":
        flat = flat.astype(np.float32)
    return {
        "dtype": result.dtype.name,
        "shape": [int(n) for n in result.shape],
        "values": [number(x) for x in flat.tolist()],
    }


def record(tf, path, call):
    """Returns what a call gives, or the name of its error."""
    space = {"f": find(tf, path), "tf": tf, **cases.make_arrays(tf)}
    try:
        return encode(eval(cases.compile_call(call), space))
    except Exception as error:
        return {"error": type(error).__name__}


def main():
    """Writes the recording."""
    import tensorflow as tf

    rows = {}
    for path, calls in sorted(cases.CALLS.items()):
        rows[path] = {
            "signature": signature(find(tf, path)),
            "calls": {call: record(tf, path, call) for call in cases.expand(calls)},
        }
    lines = [
        f"{json.dumps(path)}: {json.dumps(row, separators=(',', ':'))}"
        for path, row in rows.items()
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (HERE / "recorded.json").write_text(text, encoding="utf-8")
    print(f"{len(rows)} rows, {len(text)} bytes")


if __name__ == "__main__":
    main()
