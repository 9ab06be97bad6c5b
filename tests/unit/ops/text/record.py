"""Records what TensorFlow gives for each call of `cases`.

`python -m tests.unit.ops.text.record` writes `recorded.json` where TensorFlow is
installed.
"""

import json
import pathlib
import tempfile

import numpy as np

from tests.unit.ops.text import cases

PATH = pathlib.Path(__file__).with_name("recorded.json")


def encode(result):
    """Returns [type, shape, values] of a tensor or array, or a list of these."""
    if isinstance(result, (list, tuple)):
        return [encode(x) for x in result]
    if hasattr(result, "to_tensor"):
        result = result.to_tensor()
    found = np.asarray(result.numpy(), object)
    return [
        np.dtype(getattr(result.dtype, "as_numpy_dtype", result.dtype)).name,
        list(found.shape),
        [plain(x) for x in found.ravel().tolist()],
    ]


def plain(x):
    """Returns a value as JSON has it."""
    if isinstance(x, bytes):
        return x.decode("latin-1")
    return repr(float(x)) if isinstance(x, (float, np.floating)) else int(x)


def call(tf, text, folder):
    """Returns what a call gives, or the name of its error."""
    try:
        return encode(eval(f"tf.{text}", {"tf": tf, "np": np, "folder": f"{folder}/"}))
    except Exception as error:
        return type(error).__name__


def write_files(folder):
    """Writes the files of `cases`."""
    for name, content in cases.FILES.items():
        pathlib.Path(folder, name).write_bytes(content)


def main():
    """Writes the recording."""
    import tensorflow as tf

    found = {}
    for text in cases.CALLS:
        # TensorFlow shares the tables of a file by its path.
        with tempfile.TemporaryDirectory() as folder:
            write_files(folder)
            found[text] = call(tf, text, folder)
    rows = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    PATH.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
