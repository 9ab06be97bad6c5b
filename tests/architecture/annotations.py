"""Finds the public parameters and results that are annotated `Any`.

`python -m tests.architecture.annotations` lists them.
"""

import dataclasses
import enum
import inspect
import types
import typing

from tests.architecture import snapshot
from unisono._src.foundation import public_names


@dataclasses.dataclass
class Unknown:
    """Holds the results and parameters that are `Any`, and the number of all.

    A method that several public classes inherit counts once. If a function has
    overloads, a parameter counts if it is `Any` in all of them.

    Attributes:
        callables: the number of public functions and methods.
        results: the functions whose result is `Any`.
        parameters: the number of public parameters.
        arguments: the parameters that are `Any`.
    """

    callables: int = 0
    results: list = dataclasses.field(default_factory=list)
    parameters: int = 0
    arguments: list = dataclasses.field(default_factory=list)


def find():
    """Returns the `Unknown` of the public surface."""
    found = Unknown()
    for function in _functions():
        signatures = [
            inspect.get_annotations(f) for f in _overloads(function) or [function]
        ]
        names = dict.fromkeys(name for s in signatures for name in s)
        unknown = [
            n for n in names if all(s.get(n, "Any") == "Any" for s in signatures)
        ]
        found.callables += 1
        found.parameters += len(names.keys() - {"return"})
        where = function.__qualname__
        found.results += [where] if "return" in unknown else []
        found.arguments += [f"{where}({n})" for n in unknown if n != "return"]
    return found


def _overloads(function):
    """Returns the overloads of a function.

    Python stores them under the module and name that the function had when it was
    defined, before it was published.
    """
    home, name = public_names.homes.get(function), function.__code__.co_name
    if home is None:
        return typing.get_overloads(function)
    return typing.get_overloads(
        types.SimpleNamespace(__module__=home, __qualname__=name)
    )


def _functions():
    seen = set()
    for _, value in snapshot.public_names():
        for function in _own_functions(value):
            if function not in seen and function.__module__.startswith("unisono"):
                seen.add(function)
                yield function


def _own_functions(value):
    if inspect.isfunction(value):
        yield value
    elif inspect.isclass(value) and not issubclass(value, enum.Enum):
        for member in dir(value):
            if member == "__init__" or not member.startswith("_"):
                function = _function_of(inspect.getattr_static(value, member))
                if function is not None:
                    yield function


def _function_of(member):
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    return member if inspect.isfunction(member) else None


if __name__ == "__main__":
    unknown = find()
    print(*unknown.results, *unknown.arguments, sep="\n")
    print(f"results: {len(unknown.results)} of {unknown.callables}")
    print(f"parameters: {len(unknown.arguments)} of {unknown.parameters}")
