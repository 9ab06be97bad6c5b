"""The public names are documented, and change only on purpose."""

import dataclasses
import difflib
import inspect
import pickle
import pydoc
import sys
import types

import jax

import unisono
from tests.architecture import annotations, snapshot

# How many public results and parameters may be `Any`, because a user's values can have
# any type. Lower these numbers if there are fewer; never raise them.
MOST_UNKNOWN_RESULTS = 33
MOST_UNKNOWN_PARAMETERS = 106


def test_public_names_and_signatures_are_those_of_the_snapshot():
    stored = snapshot.stored()
    current = snapshot.render().splitlines()
    difference = list(difflib.unified_diff(stored, current, n=0, lineterm=""))
    assert not difference, (
        "the public surface changed. If that is meant, note it in CHANGELOG.md and run "
        "`python -m tests.architecture.snapshot`:\n" + "\n".join(difference)
    )


def test_every_public_name_is_documented():
    bare = [name for name, obj in snapshot.public_names() if not _is_documented(obj)]
    assert not bare, f"expected a docstring on every public name; missing on {bare}."


def test_every_public_method_of_a_public_class_is_documented():
    bare = [
        f"{name}.{member}"
        for name, cls in snapshot.public_names()
        if inspect.isclass(cls)
        for member, value in vars(cls).items()
        if not member.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property))
        and not inspect.getdoc(getattr(cls, member))
    ]
    assert not bare, f"expected a docstring on every public method; missing on {bare}."


def test_public_signatures_say_their_types():
    found = annotations.find()
    assert len(found.results) <= MOST_UNKNOWN_RESULTS, (
        f"expected a type for what a function gives, received Any: {found.results}."
    )
    assert len(found.arguments) <= MOST_UNKNOWN_PARAMETERS, (
        f"expected a type for each parameter, received Any: {found.arguments}."
    )


def test_every_public_class_and_function_says_its_public_name():
    private = {}
    for name, value in snapshot.public_names():
        if value is not jax.Array and _has_name(value):
            module = sys.modules.get(value.__module__)
            public = not any(part[:1] == "_" for part in value.__module__.split("."))
            if not public or getattr(module, value.__qualname__, None) is not value:
                private[name] = f"{value.__module__}.{value.__qualname__}"
    assert not private, (
        "expected each public name to be told by help() and tracebacks, received "
        f"{private}; a public module must import each from unisono._src or from the "
        "public module that it is shown with."
    )


def test_public_classes_and_functions_can_be_pickled_by_name():
    for _, value in snapshot.public_names():
        # JAX's class of arrays is ours by the name `Tensor`; it cannot be pickled.
        if value is not jax.Array and _has_name(value):
            assert pickle.loads(pickle.dumps(value)) is value


def test_the_source_of_public_functions_and_methods_can_be_read():
    assert "def run(" in inspect.getsource(unisono.distribute.Strategy.run)
    assert "def value_and_grad(" in inspect.getsource(unisono.value_and_grad)


def test_help_shows_the_public_module():
    shown = pydoc.plain(pydoc.render_doc(unisono.distribute.MirroredStrategy))
    assert "class MirroredStrategy in module unisono.distribute\n" in shown
    assert "_src" not in shown.partition("Method resolution order")[0]


def test_every_name_in_all_exists_once():
    for module_name, module in snapshot.public_modules().items():
        assert len(set(module.__all__)) == len(module.__all__), module_name
        missing = [name for name in module.__all__ if not hasattr(module, name)]
        assert not missing, f"{module_name}.__all__ names {missing}: none exists."


def _has_name(value):
    return inspect.isclass(value) or inspect.isfunction(value)


def _is_documented(value):
    if inspect.isclass(value):
        # A dataclass without a docstring gets its signature as one.
        written = value.__dict__.get("__doc__") or ""
        generated = dataclasses.is_dataclass(value) and written.startswith(
            f"{value.__name__}("
        )
        return bool(written.strip()) and not generated
    if callable(value) or isinstance(value, types.ModuleType):
        return bool((value.__doc__ or "").strip())
    return True
