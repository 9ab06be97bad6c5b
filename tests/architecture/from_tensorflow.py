"""Writes the tables of `docs/from-tensorflow.md` from the data that the code uses.

`python -m tests.architecture.from_tensorflow` writes them again after a change: of the
names that the package has, of the rows of `unisono check`, or of the feature table.
"""

import collections
import re

from tests.architecture import everyday_names, sources
from tests.plugins import features
from unisono._src.cli.check import package_names, rows
from unisono._src.foundation.tensorflow_names import families, listing
from unisono._src.integrations import keras_renames

PAGE = sources.ROOT / "docs" / "from-tensorflow.md"

_TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def render(text):
    """Returns the page with its tables as they should be."""
    return _TABLE.sub(
        lambda m: f"<!-- table: {m[1]} -->\n{TABLES[m[1]]()}<!-- end -->", text
    )


def _table(heads, lines):
    rule = ["---"] * len(heads)
    cells = [" | ".join(str(c).replace("|", r"\|") for c in row) for row in lines]
    return "".join(
        f"| {row} |\n" for row in [" | ".join(heads), " | ".join(rule), *cells]
    )


def _features():
    found = features.read_table().values()
    return _table(
        ("row", "what TensorFlow has", "here"),
        ((row.id, row.capability, row.difference or "the same") for row in found),
    )


def _names():
    """Lists the names that are here, by the module that has them."""
    kinds, _ = listing._read()
    here = collections.defaultdict(list)
    for path, kind in kinds.items():
        found = package_names.find(path) is not package_names.NOTHING
        above, _, name = path.rpartition(".")
        if found and kind not in ("member", "module"):
            here[above].append(f"`{name}`")
    return _table(
        ("module", "names"),
        (
            (f"`tf.{above}`" if above else "`tf`", ", ".join(sorted(names)))
            for above, names in sorted(here.items())
        ),
    )


def _differences():
    names = everyday_names.load().values()
    found = {name.path: name.difference for name in names if name.difference}
    found |= rows.DIFFERENCES
    return _table(
        ("name", "difference"),
        ((f"`tf.{path}`", told) for path, told in sorted(found.items())),
    )


def _keras():
    moved = sorted(keras_renames.MOVED.items())
    told = sorted(keras_renames.TOLD.items())
    lines = [(f"`tf.keras.{a}`", f"Works: it is `keras.{b}`.") for a, b in moved]
    lines += [(f"`tf.keras.{path}`", text) for path, text in told]
    kept = sorted(rows.KERAS_KEPT.items())
    lines += [(f"`{path}`", f"Works. {told}") for path, told in kept]
    lines += [(f"`{path}`", told) for path, told in sorted(rows.KERAS_GONE.items())]
    for owner, taken in sorted(rows.KERAS_TAKEN.items()):
        names = sorted(taken.items())
        lines += [(f"`{owner}(…, {a}=…)`", f"Works. {told}") for a, told in names]
    arguments = sorted(rows.KERAS_ARGUMENTS.items())
    lines += [(f"argument `{name}=`", told) for name, told in arguments]
    return _table(("Keras 2", "Keras 3"), lines)


def _missing():
    paths = collections.defaultdict(list)
    for row in families.ROWS:
        is_general = not row.path or row.path == "compat.v1"
        if not is_general and package_names.find(row.path) is package_names.NOTHING:
            paths[row.purpose, row.instead].append(f"`tf.{row.path}`")
    return _table(
        ("not here", "what it is for", "what to use"),
        ((", ".join(names), *said) for said, names in paths.items()),
    )


def _packages():
    return _table(
        ("package", "what to know"),
        ((f"`{name}`", told) for name, told in sorted(rows.OTHER_PACKAGES.items())),
    )


TABLES = {
    "features": _features,
    "names": _names,
    "differences": _differences,
    "keras": _keras,
    "missing": _missing,
    "packages": _packages,
}

if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE.name}: {', '.join(TABLES)}")
