"""Writes the tables of `docs/from-tensorflow` from the data that the code uses.

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

PAGES = sorted((sources.ROOT / "docs" / "from-tensorflow").glob("*.md"))

_LINK = re.compile(r"\]\((?=[a-z-]+(?:/|\.md))")
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
        (
            # Links of the data are those of a page in `docs`.
            (row.id, row.capability, _LINK.sub("](../", row.difference or "the same"))
            for row in found
        ),
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


# A part of TensorFlow with fewer lines than this has no table of its own.
_FEW = 5


def _missing():
    """Lists what is not here, in a table for each large part of TensorFlow."""
    paths = collections.defaultdict(list)
    for row in families.ROWS:
        is_general = not row.path or row.path == "compat.v1"
        if not is_general and package_names.find(row.path) is package_names.NOTHING:
            paths[_part_of(row.path), row.instead].append(f"`tf.{row.path}`")
    parts = collections.defaultdict(list)
    for (part, instead), names in paths.items():
        parts[part].append((", ".join(names), instead))
    small = [
        line
        for part in sorted(parts)
        if len(parts[part]) < _FEW
        for line in parts[part]
    ]
    tables = {"Single names": sorted(small)}
    tables |= {f"`tf.{p}`": parts[p] for p in sorted(parts) if len(parts[p]) >= _FEW}
    return "".join(
        f"\n## {title}\n\n{_table(('not here', 'what to use'), lines)}"
        for title, lines in tables.items()
    )


def _part_of(path):
    return "compat.v1" if path.startswith("compat.v1.") else path.partition(".")[0]


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
    for page in PAGES:
        page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page.name)
