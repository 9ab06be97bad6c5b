"""Records what TensorFlow gives for each call of `cases`, and its signatures.

`python -m tests.unit.ops.images.record` writes `recorded.json` where TensorFlow is
installed.
"""

import base64
import json

import numpy as np

from tests.unit.ops.images import cases
from tests.unit.ops.record import find, signature


def encode(array):
    """Returns the type, the shape and the bytes of an array."""
    return {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
    }


def main():
    """Writes the recording."""
    import tensorflow as tf

    space = {"tf": tf, "np": np, "FILES": cases.read_files(), **cases.make_arrays()}
    rows = {}
    for path, calls in cases.CALLS.items():
        found = {}
        for call in calls:
            try:
                result = eval(call, {**space, "f": find(tf, path)})
                found[call] = encode(result.numpy())
            except Exception as error:
                found[call] = {"error": type(error).__name__}
        rows[path] = {"signature": signature(find(tf, path)), "calls": found}
    lines = [f"{json.dumps(path)}: {json.dumps(row)}" for path, row in rows.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (cases.HERE / "recorded.json").write_text(text, encoding="utf-8")
    print(f"{sum(map(len, cases.CALLS.values()))} calls, {len(text)} bytes")


if __name__ == "__main__":
    main()
