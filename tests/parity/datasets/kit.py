"""What the programs share: plain results, specs as text, errors by name, files.

Everything here works with TensorFlow and with unisono alike and imports neither.
"""

import functools
import gzip
import itertools
import pathlib
import struct
import zlib
from collections.abc import Callable

import numpy as np

PROGRAMS = {}
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "GZIP": gzip.compress,
    "ZLIB": zlib.compress,
}

# The name of an element type is understood by both libraries.
STRING = "string"


class Program:
    """A named program, the feature rows it proves, and the methods it may lack."""

    def __init__(self, run, rows, needs):
        self.run, self.rows, self.needs = run, rows, needs


def program(*rows, needs=()):
    """Registers `run(tf, tmp)` under its name.

    Args:
        *rows: The rows of the feature table that the program proves.
        needs: Names of `Dataset` beyond the everyday surface. A library without one
            of them has no result to compare.
    """

    def register(run):
        name = f"{run.__module__.rpartition('.')[2]}.{run.__name__}"
        if name in PROGRAMS:
            raise ValueError(f"There are two programs {name}.")
        PROGRAMS[name] = Program(
            run, rows, (needs,) if isinstance(needs, str) else needs
        )
        return run

    return register


def plain(x):
    """Returns an element as lists, dicts, numbers and text."""
    if isinstance(x, dict):
        return {key: plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [plain(part) for part in x]
    if isinstance(x, bytes):
        return x.decode("latin-1")
    if x is None or isinstance(x, str | bool | int | float):
        return x
    if hasattr(x, "as_numpy_iterator"):
        return elements(x)
    if hasattr(x, "to_list"):
        return x.to_list()
    if hasattr(x, "numpy"):
        return plain(x.numpy())
    return plain(np.asarray(x).tolist())


def elements(dataset, limit=100):
    """Returns the first elements of a dataset, plain."""
    return [plain(x) for x in itertools.islice(iter(dataset), limit)]


def structure(x):
    """Returns the container types of an element; a leaf is its shape and type."""
    if isinstance(x, dict):
        return {key: structure(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [type(x).__name__, *(structure(part) for part in x)]
    x = x.numpy() if hasattr(x, "numpy") else x
    if isinstance(x, bytes | str):
        return "() " + STRING
    x = np.asarray(x)
    return f"{x.shape} {dtype_name(x.dtype)}"


def dtype_name(dtype):
    """Returns the name of an element type, however the library writes it."""
    name = getattr(dtype, "name", None) or np.dtype(dtype).name
    return STRING if name.startswith(("object", "bytes", "str")) else name


def spec(s):
    """Returns an `element_spec`: 'shape dtype' at the leaves."""
    if isinstance(s, dict):
        return {key: spec(value) for key, value in s.items()}
    if isinstance(s, list | tuple):
        return [spec(part) for part in s]
    if hasattr(s, "element_spec"):
        return {"Dataset": spec(s.element_spec)}
    parts = getattr(s, "_value_specs", None) or getattr(s, "specs", None)
    if parts is not None:
        return {f"PerReplica {len(parts)}": sorted({str(spec(p)) for p in parts})}
    if not hasattr(s, "shape"):
        return type(s).__name__
    rank = getattr(s.shape, "rank", 0) if s.shape is not None else None
    shape = "unknown" if rank is None else str(tuple(s.shape))
    return f"{shape} {dtype_name(s.dtype)}"


def both(dataset):
    """Returns the `element_spec` and the elements of a dataset."""
    return {"spec": spec(dataset.element_spec), "elements": elements(dataset)}


def cardinality(dataset):
    """Returns the number of elements as a Python int; -1 infinite, -2 unknown."""
    return int(dataset.cardinality())


def error(make):
    """Returns the name of the error of `make()`, iterating what it returns; or 'ok'."""
    try:
        made = make()
        if hasattr(made, "as_numpy_iterator"):
            elements(made)
    except Exception as e:
        return type(e).__name__
    return "ok"


def generated(tf, values, shape=(None,), dtype="int64"):
    """A dataset of the arrays in `values`, whose sizes the spec does not tell."""
    return tf.data.Dataset.from_generator(
        lambda: (np.asarray(v, dtype) for v in values),
        output_signature=tf.TensorSpec(shape, dtype),
    )


class Counted:
    """A source that counts how many elements were drawn from it."""

    def __init__(self, tf, n):
        self.drawn = 0

        def draw():
            for i in range(n):
                self.drawn += 1
                yield i

        self.dataset = tf.data.Dataset.from_generator(
            draw, output_signature=tf.TensorSpec((), "int64")
        )


def _crc_table():
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        yield i


_CRC = tuple(_crc_table())


def _masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(*payloads):
    """Returns the bytes of a TFRecord file."""
    out = b""
    for data in payloads:
        length = struct.pack("<Q", len(data))
        out += length + struct.pack("<I", _masked_crc(length))
        out += data + struct.pack("<I", _masked_crc(data))
    return out


def write(tmp, name, data, compression=""):
    """Writes a file below `tmp`; returns its path as text."""
    data = data.encode() if isinstance(data, str) else data
    path = tmp / name
    path.write_bytes(_PACKERS[compression](data))
    return str(path)


def flip(path, offset):
    """Changes one byte of a file."""
    file = pathlib.Path(path)
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def policy(tf, dataset, name):
    """Returns the dataset with the auto-shard policy of that name."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, name
    )
    return dataset.with_options(options)


def number(tf, text):
    """Returns text as an integer: a function of both libraries' maps."""
    return tf.strings.to_number(text, np.int64)


def fresh_mirrored(tf, n):
    """A strategy of `n` replicas on CPU devices; a new one.

    TensorFlow's strategy stays changed after one dataset per replica was asked of it.
    """
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)])


mirrored = functools.cache(fresh_mirrored)


def step(strategy, value):
    """Returns one step as text, replicas apart by '|', examples by a blank."""
    if isinstance(value, dict):
        return {key: step(strategy, part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [step(strategy, part) for part in value]
    parts = (plain(part) for part in strategy.experimental_local_results(value))
    return "|".join(
        " ".join(map(_short, p)) if isinstance(p, list) else _short(p) for p in parts
    )


def _short(x):
    return "".join(str(x).split())


def steps(strategy, distributed, limit=8):
    """Returns the first steps of a distributed dataset as text."""
    found = []
    try:
        for value in itertools.islice(iter(distributed), limit):
            found.append(step(strategy, value))
    except Exception as e:
        found.append(type(e).__name__)
    return found
