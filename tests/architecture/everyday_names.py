"""Writes the functions of TensorFlow's everyday names from their table.

`python -m tests.architecture.everyday_names` writes them again after a change of
`unisono._src.ops.table`: in `ops/names` a module for each area, and in `ops/facades`
for each public module the list of its names and where each is found. The differences
of rows from TensorFlow go to `docs/differences.md`.
"""

import ast
import pathlib
import re
import subprocess
import sys
import textwrap

from unisono._src.ops import table

OPS = pathlib.Path(table.__file__).parents[1]
HOME = "unisono._src.ops"

_HEADER = "# Written by `python -m tests.architecture.everyday_names` from ops/table.\n"
_MODULES = {
    path.stem: f"from {HOME} import {path.stem}"
    for path in OPS.glob("*.py")
    if path.stem not in ("__init__", "tensors")
}
_IMPORTS = {
    "Any": "from typing import Any",
    "Callable": "from collections.abc import Callable",
    "DType": f"from {HOME}.tensors import DType",
    "Sequence": "from collections.abc import Sequence",
    "Sizes": f"from {HOME}.tensors import Sizes",
    "TensorLike": f"from {HOME}.tensors import TensorLike",
    "dtypes": "from unisono._src.foundation import dtypes",
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "tensors": f"from {HOME} import tensors",
    **_MODULES,
}
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "differences.md"
_BEGIN, _END = "<!-- rows of the table -->", "<!-- end of the rows -->"


def files():
    """Returns the text of each file, by its path."""
    made = {}
    for area, rows in table.AREAS.items():
        if any(row.call for row in rows):
            made[OPS / "names" / f"{area}.py"] = _functions_module(area, rows)
    for facade in sorted({path.rpartition(".")[0] for path in _listed_paths()}):
        name = facade.replace(".", "_") or "root"
        made[OPS / "facades" / f"{name}.py"] = _facade_module(facade)
    return made


def differences():
    """Returns the list of what rows do otherwise than TensorFlow."""
    paths = {}
    for row in table.NAMES.values():
        if row.difference and f"`{row.path}`" not in paths.get(row.difference, []):
            paths.setdefault(row.difference, []).append(f"`{row.path}`")
    entries = [f"{', '.join(sorted(p))}: {text}" for text, p in paths.items()]
    lines = []
    for entry in sorted(entries):
        lines += textwrap.wrap(
            entry,
            90,
            initial_indent="- ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def with_differences(text):
    """Returns the page of differences with the list of the rows in its place."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    return f"{before}{begin}\n{differences()}\n{end}{after}"


def public_module(path):
    """Returns the public module that has a path of TensorFlow."""
    return ".".join(["unisono", *path.split(".")[:-1]])


def place(path):
    """Returns ``module:name`` of the function of a path."""
    row = table.NAMES[path]
    if row.target:
        module, _, name = row.target.partition(":")
        full = module if module.startswith("unisono.") else f"{HOME}.{module}"
        return f"{full}:{name}"
    area = next(a for a, rows in table.AREAS.items() if row in rows)
    return f"{HOME}.names.{area}:{_last(row.path)}"


def _last(path):
    return path.rpartition(".")[2]


def _listed_paths():
    """Returns the paths of areas that have functions to write.

    An area whose names are all written by hand is in the public modules by hand, too.
    """
    areas = [rows for rows in table.AREAS.values() if any(row.call for row in rows)]
    return sorted(p for rows in areas for row in rows for p in (row.path, *row.also))


def _functions_module(area, rows):
    rows = [row for row in rows if row.call]
    functions = "\n\n".join(_function(row) for row in rows)
    used = set(re.findall(r"\w+", re.sub(r'"""(.|\n)*?"""', "", functions)))
    imports = sorted({line for name, line in _IMPORTS.items() if name in used})
    published = {}
    for row in rows:
        published.setdefault(public_module(row.path), []).append(_last(row.path))
    calls = [f"publish({m!r}, {', '.join(names)})" for m, names in published.items()]
    lines = [
        f'"""{table.__dict__[area].__doc__.strip()}"""',
        _HEADER,
        "from __future__ import annotations",
        *imports,
        "from unisono._src.foundation.public_names import publish",
        functions,
        *calls,
    ]
    return "\n".join(lines) + "\n"


def _function(row):
    arguments, _, result = row.signature.partition(" -> ")
    parts = [row.summary, "", *_wrap(_origin(row))]
    if row.difference:
        parts += ["", *_wrap(row.difference)]
    if row.example:
        parts += ["", *row.example.splitlines()]
    single = len(parts) == 1
    doc = parts[0] if single else "\n    ".join(parts) + "\n    "
    doc = "\n".join(line.rstrip() if line.strip() else "" for line in doc.split("\n"))
    doc = doc if single else doc + "    "
    return (
        f"def {_last(row.path)}({arguments}) -> {result or 'jax.Array'}:\n"
        f'    """{doc}"""\n'
        f"    return {row.call}\n"
    )


def _origin(row):
    text = f"The arguments are those of TensorFlow's ``tf.{row.path}``"
    has_name = re.search(r"\bname:", row.signature)
    return f"{text}; `name` has no effect." if has_name else f"{text}."


def _wrap(text):
    return textwrap.wrap(text, 84, break_long_words=False, break_on_hyphens=False)


def _facade_module(facade):
    prefix = f"{facade}." if facade else ""
    paths = {
        _last(path): place(path)
        for path in _listed_paths()
        if path.rpartition(".")[0] == facade
    }
    modules = {}
    for name, where in paths.items():
        module, _, there = where.partition(":")
        modules.setdefault(module, []).append(
            name if name == there else f"{there} as {name}"
        )
    imports = [
        f"    from {module} import ({', '.join(names)})"
        for module, names in sorted(modules.items())
    ]
    places = []
    for module, names in sorted(modules.items()):
        words = [re.sub(r"(\w+) as (\w+)", r"\2=\1", name) for name in names]
        lines = textwrap.wrap(" ".join(words), 72, break_on_hyphens=False)
        quoted = [f"{line + ' '!r}" for line in lines[:-1]] + [repr(lines[-1])]
        places += [f"    {module!r}: (", *quoted, "),"]
    exported = [f"    {name!r}," for name in paths]
    lines = [
        f'"""The everyday names of ``tf.{prefix}`` and where each is found."""'.replace(
            "``tf.``", "``tf`` itself"
        ).replace(".``", "``"),
        _HEADER,
        "from __future__ import annotations",
        "import typing as _typing",
        "from unisono._src.foundation import lazy_names as _lazy_names",
        "if _typing.TYPE_CHECKING:",
        *imports,
        "",
        "PLACES = _lazy_names.spread({",
        *places,
        "})",
        "__all__ = [",
        *exported,
        "]",
    ]
    return "\n".join(lines) + "\n"


def is_current(path, text):
    """Whether a file says what `text` says, however it is laid out."""
    if not path.is_file():
        return False
    return _tree(path.read_text(encoding="utf-8")) == _tree(text)


def _tree(text):
    """Returns a syntax tree in which the order of imports and names does not count."""
    tree = ast.parse(text)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found += [
                ast.unparse(a) + str(getattr(node, "module", "")) for a in node.names
            ]
    body = [
        n for n in tree.body if not isinstance(n, ast.ImportFrom | ast.Import | ast.If)
    ]
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            node.value.elts.sort(key=ast.unparse)
    return sorted(found), [ast.unparse(node) for node in body]


def main():
    """Writes all files, in ruff's layout, and removes those that are not made."""
    made = files()
    for folder in ("names", "facades"):
        for path in (OPS / folder).glob("*.py"):
            if path not in made and path.stem != "__init__":
                path.unlink()
    for path, text in made.items():
        if not is_current(path, text):
            path.write_text(text, encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_differences(page), encoding="utf-8")
    paths = [str(path) for path in made]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "format", "-q", *paths], check=True)
    subprocess.run([*ruff, "check", "-q", "--fix", *paths], check=True)
    subprocess.run([*ruff, "format", "-q", *paths], check=True)
    print(f"{len(table.NAMES)} names in {len(made)} modules")


if __name__ == "__main__":
    main()
