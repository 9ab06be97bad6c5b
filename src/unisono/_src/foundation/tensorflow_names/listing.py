"""TensorFlow's public names and their kinds, read from the shipped list."""

from __future__ import annotations

import functools
import pathlib

_LIST = pathlib.Path(__file__).with_name("names.txt")

_ONE = {
    "classes": "class",
    "functions": "function",
    "members": "member",
    "modules": "module",
    "values": "value",
}


def kind(path: str) -> str | None:
    """Returns the kind of a name, such as "class"; None if TensorFlow lacks it.

    Args:
        path: the dotted path without ``tf.``. A name below ``compat.v2`` is the one
            without it; a name below ``compat.v1`` or another module that is not listed
            counts as TensorFlow's, and is a ``"name"``.

    >>> kind("strings"), kind("strings.split"), kind("Variable.assign")
    ('module', 'function', 'member')
    >>> kind("raw_ops.MatMul"), kind("no_such_thing")
    ('name', None)
    """
    path = drop_v2(path)
    kinds, unlisted = _read()
    if path in kinds:
        return kinds[path]
    return "name" if path.startswith(unlisted) else None


def drop_v2(path: str) -> str:
    """Returns the path that a name below ``compat.v2`` has in TensorFlow 2.

    >>> drop_v2("compat.v2.distribute.Strategy")
    'distribute.Strategy'
    """
    return path.removeprefix("compat.v2.")


def paths_of(what: str, name: str) -> list[str]:
    """Returns the paths of all names of a kind that end in `name`.

    >>> paths_of("class", "MirroredStrategy")
    ['distribute.MirroredStrategy']
    """
    kinds, _ = _read()
    return [p for p, k in kinds.items() if k == what and p.rpartition(".")[2] == name]


@functools.cache
def _read() -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns the kind of each name, and the modules below which none is listed."""
    kinds: dict[str, str] = {}
    unlisted: tuple[str, ...] = ()
    for line in _LIST.read_text(encoding="ascii").splitlines():
        above, word, *names = line.split(" ")
        if above == "*":
            unlisted = tuple(f"{name}." for name in names)
        elif above != "#":
            prefix = "" if above == "." else f"{above}."
            kinds.update({prefix + name: _ONE[word] for name in names})
    return kinds, unlisted
