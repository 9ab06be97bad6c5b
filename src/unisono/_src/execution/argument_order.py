"""The arguments of a call in the order of the parameters of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from unisono._src.execution import signature

_EMPTY = inspect.Parameter.empty
_BY_NAME = inspect.Parameter.KEYWORD_ONLY
# Kinds of parameters whose arguments have no order of their own.
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@final
class ArgumentOrder:
    """Puts the arguments of calls that mean the same in one form.

    Each argument is at the place of its parameter, and defaults are arguments, too:
    ``f(x)``, ``f(x=x)`` and ``f(x, training=False)`` are one call.

    Args:
        parameters: the parameters of the function.

    >>> def f(x, training=False): ...
    >>> ArgumentOrder(inspect.signature(f)).put((), {"x": 1})
    ((1, False), {})
    """

    def __init__(self, parameters: inspect.Signature) -> None:
        every = parameters.parameters.values()
        self._places = [(p.name, p.default) for p in every if p.kind != _BY_NAME]
        self._named = {p.name: p.default for p in every if p.kind == _BY_NAME}
        self._needed = {name for name, x in self._named.items() if x is _EMPTY}
        self._by_place = {p.name for p in every if p.kind == p.POSITIONAL_ONLY}

    def put(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all arguments of a call; those that were given if the call raises."""
        if not (kwargs or self._named) and len(args) == len(self._places):
            return args, kwargs
        given, named = list(args), dict(kwargs)
        for name, default in self._places[len(args) :]:
            if name in named and name not in self._by_place:
                given.append(named.pop(name))
            elif default is _EMPTY:
                return args, kwargs
            else:
                given.append(default)
        rest = self._named | named
        is_wrong = len(rest) > len(self._named) or len(given) > len(self._places)
        if is_wrong or (self._needed and not self._needed <= named.keys()):
            return args, kwargs
        return tuple(given), rest


def find_order(fn: Callable[..., object]) -> ArgumentOrder | None:
    """Return the order of the arguments of a function; None if it has none.

    It has none if there may be any number of arguments, or if a default is not a plain
    value: it would be an argument like others.
    """
    try:
        parameters = inspect.signature(fn)
    except (TypeError, ValueError):  # Python does not know them.
        return None
    plain = (*signature.SCALARS, type(_EMPTY))
    for each in parameters.parameters.values():
        if each.kind in _OPEN or type(each.default) not in plain:
            return None
    return ArgumentOrder(parameters)


def apply(
    parameters: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    input_signature: Sequence[Any],
    is_host: bool = False,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments as arrays, once they match an `input_signature`.

    Args:
        parameters: the parameters of the function.
        args: the arguments.
        kwargs: the arguments with names.
        input_signature: a spec, or a structure of them, for each.
        is_host: whether they become arrays of NumPy's; see `apply_specs`.

    Raises:
        TypeError: an argument is missing, is one too many, or does not match.
    """
    bound = _bind(parameters, args, kwargs, input_signature)
    given = (*bound.args, *bound.kwargs.values())
    found = signature.apply_specs(given, input_signature, is_host)
    count = len(bound.args)
    return found[:count], dict(zip(bound.kwargs, found[count:], strict=True))


def _bind(
    parameters: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    input_signature: Sequence[Any],
) -> inspect.BoundArguments:
    """Return the arguments of a call that an `input_signature` describes.

    Parameters with a default may be left out. Those for which there is no spec keep
    their default, as in TensorFlow.

    Raises:
        TypeError: an argument is missing, or one without a spec is not its default.
    """
    bound = parameters.bind(*args, **kwargs)
    if len(args) + len(kwargs) == len(input_signature):
        return bound
    bound.apply_defaults()
    values = len(bound.args) + len(bound.kwargs)
    for name in reversed(parameters.parameters):
        default = parameters.parameters[name].default
        if values <= len(input_signature) or default is inspect.Parameter.empty:
            break
        value = bound.arguments[name]
        if value is not default and not _is_equal(value, default):
            raise TypeError(
                f"The input_signature has no spec for the argument {name!r}, so it "
                f"must be its default {default!r}, received {value!r}. Add a "
                "TensorSpec for it, or leave out the input_signature."
            )
        del bound.arguments[name]
        values -= 1
    return bound


def _is_equal(value: object, default: object) -> bool:
    """Whether an argument is the default of its parameter."""
    return (
        type(value) in signature.SCALARS
        and type(value) is type(default)
        and value == default
    )
