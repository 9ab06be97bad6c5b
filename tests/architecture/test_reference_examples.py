"""Examples of the reference run where a reader copies them to."""

import ast
import doctest
import importlib.util
import inspect
import pathlib

import unisono
from tests.architecture import snapshot

TOOLS = pathlib.Path(__file__).parents[2] / "docs" / "tools"
_spec = importlib.util.spec_from_file_location("examples", TOOLS / "examples.py")
examples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(examples)


def _documented():
    """Yields the path and the value of public functions, classes and their members."""
    for path, module in snapshot.public_modules().items():
        for name in module.__all__:
            value = getattr(module, name)
            home = (getattr(value, "__module__", None) or "").partition(".")[0]
            if home != "unisono" or not callable(value):
                continue
            yield f"{path}.{name}", value
            members = vars(value).items() if inspect.isclass(value) else ()
            for member, one in members:
                if not member.startswith("_"):
                    yield f"{path}.{name}.{member}", getattr(one, "__func__", one)


def test_examples_with_the_added_imports_use_no_other_names():
    missing = {}
    for path, value in _documented():
        lines = (inspect.getdoc(value) or "").split("\n")
        examples.add_imports(value, lines)
        found = doctest.DocTestParser().get_examples("\n".join(lines))
        names = [*examples.find_free(ast.parse("".join(e.source for e in found)))]
        if names:
            missing[path] = names
    assert not missing


def test_only_missing_names_are_imported():
    lines = [
        "Says what it does.",
        "",
        "    >>> import unisono",
        "    >>> strategy = MirroredStrategy(['CPU:0'])",
    ]
    examples.add_imports(unisono.distribute.MirroredStrategy, lines)
    added = "    >>> from unisono.distribute import MirroredStrategy"
    assert lines[2:4] == [added, "    >>> import unisono"]
    before = list(lines)
    examples.add_imports(unisono.distribute.MirroredStrategy, lines)
    assert lines == before
