"""Records what TensorFlow gives for each call of `cases`, and files that it writes.

`python -m tests.unit.ops.records.record` writes `recorded.json` where TensorFlow is
installed.
"""

import base64
import json
import pathlib
import tempfile

import numpy as np

from tests.unit.ops.records import cases

HERE = pathlib.Path(__file__).parent


def number(x):
    """Returns a number or text as JSON has it."""
    if isinstance(x, bytes):
        return x.decode("latin-1")
    if isinstance(x, complex):
        return [number(x.real), number(x.imag)]
    return x if np.isfinite(x) else str(x)


def encode(result):
    """Returns [type, shape, values] of a tensor, or a structure of these."""
    if isinstance(result, dict):
        return {key: encode(x) for key, x in sorted(result.items())}
    if isinstance(result, (list, tuple)):
        return [encode(x) for x in result]
    array = np.asarray(
        result.numpy(), object if result.dtype.name == "string" else None
    )
    flat = array.astype("float32") if result.dtype.name == "bfloat16" else array
    return [
        result.dtype.name,
        [int(n) for n in array.shape],
        [number(x) for x in flat.reshape(-1).tolist()],
    ]


def densify(tf, result):
    """Returns a structure whose sparse tensors are dense."""
    if isinstance(result, dict):
        return {key: densify(tf, x) for key, x in result.items()}
    if isinstance(result, tuple):
        return tuple(densify(tf, x) for x in result)
    return tf.sparse.to_dense(result) if hasattr(result, "dense_shape") else result


def record(tf, call):
    """Returns what a call gives, or the name of its error."""
    try:
        return encode(densify(tf, cases.run(tf, call)))
    except Exception as error:
        return {"error": type(error).__name__}


def files(tf):
    """Returns the bytes of files of two records each, by their compression."""
    found = {}
    for kind in ("", "GZIP", "ZLIB"):
        path = pathlib.Path(tempfile.mkdtemp(), "records")
        options = tf.io.TFRecordOptions(compression_type=kind)
        with tf.io.TFRecordWriter(str(path), options) as writer:
            names = cases.make_names(tf)
            writer.write(names["ex"](x=[1], y=[b"one"]))
            writer.write(names["ex"](x=[-2], y=[b"two" * 20]))
        found[kind] = base64.b64encode(path.read_bytes()).decode()
    return found


def main():
    """Writes the recording."""
    import tensorflow as tf

    lines = [
        f"{json.dumps(call)}: {json.dumps(record(tf, call), separators=(',', ':'))}"
        for call in cases.expand()
    ]
    text = "{" + f'"files": {json.dumps(files(tf))},\n"calls": {{\n'
    text += ",\n".join(lines) + "\n}}\n"
    json.loads(text)
    (HERE / "recorded.json").write_text(text, encoding="utf-8")
    print(f"{len(lines)} calls, {len(text)} bytes")


if __name__ == "__main__":
    main()
