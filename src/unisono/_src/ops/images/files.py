"""Whole files as text of bytes: `read_file` and `write_file` of ``tf.io``."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np

from unisono._src.foundation import local_files
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements

__all__ = ["read_file", "write_file"]

# Text, as programs have it, and as the elements of datasets have it.
Text: TypeAlias = str | bytes | os.PathLike[str] | np.ndarray


def read_text(name: str, what: str, x: object) -> bytes:
    """Returns an argument that is one text as bytes.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(x, np.ndarray) and not x.ndim:
        x = x.item()
    # The most frequent case first: this runs for every photo.
    if isinstance(x, bytes):
        return x
    if isinstance(x, os.PathLike):
        x = os.fspath(x)
    if isinstance(x, str):
        return x.encode()
    if not isinstance(x, bytes):
        kind = f"{type(x).__name__} of shape {getattr(x, 'shape', ())}"
        raise TypeError(f"{what} of {name} must be one string, received {kind}.")
    return x


@everyday_name("io.read_file")
def read_file(filename: Text, name: str | None = None) -> elements.HostArray:
    """Returns the contents of a file on this machine.

    Args:
        filename: the path of the file.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        NotFoundError: the file does not exist.

    >>> import os, tempfile, unisono
    >>> path = os.path.join(tempfile.mkdtemp(), "new", "notes")
    >>> unisono.io.write_file(path, "one")
    >>> unisono.io.read_file(path).numpy()
    b'one'
    """
    path = os.fsdecode(read_text("read_file", "filename", filename))
    made = np.empty((), object)
    made[()] = local_files.read_bytes(path)
    found: Any = made.view(elements.HostArray)
    found.path = path  # For errors of what decodes it.
    return found  # type: ignore[no-any-return]


@everyday_name("io.write_file")
def write_file(filename: Text, contents: Text, name: str | None = None) -> None:
    """Writes a file on this machine, and creates the folders above it if necessary.

    Args:
        filename: the path of the file, which is overwritten if it exists.
        contents: the new contents of the file.
        name: accepted for compatibility with TensorFlow and ignored.
    """
    path = os.fsdecode(read_text("write_file", "filename", filename))
    written = read_text("write_file", "contents", contents)
    local_files.makedirs(os.path.dirname(path) or ".")
    with local_files.GFile(path, "wb") as file:
        file.write(written)
