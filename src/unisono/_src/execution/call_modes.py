"""What changes the calls of a `function`: eager mode, datasets, and observers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

from unisono._src.execution import program_cache
from unisono._src.foundation import ambient, nest
from unisono._src.foundation.tensorflow_names import host_bodies
from unisono._src.values import jax_traces


@final
class Mode:
    """Says whether all functions of the process run as plain Python."""

    is_eager = False


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Makes every `unisono.function` run as plain Python, or compiled again.

    Use it to look for a mistake: a debugger stops inside the function, and `print`
    shows values. The results are the same, but the Python code runs at every call, and
    a Python number that a function returns stays a Python number.

    Args:
        run_eagerly: True to run the Python functions, False to run compiled programs.

    >>> import unisono
    >>> double = unisono.function(lambda x: 2 * x)
    >>> unisono.config.run_functions_eagerly(True)
    >>> double(3), double.experimental_get_tracing_count()
    (6, 0)
    >>> unisono.config.run_functions_eagerly(False)
    >>> int(double(3)), double.experimental_get_tracing_count()
    (6, 1)
    """
    Mode.is_eager = bool(run_eagerly)
    # The short way of a call must not be taken; compiled calls find it again.
    program_cache.forget_last_calls()


def functions_run_eagerly() -> bool:
    """Returns whether functions run as plain Python; see `run_functions_eagerly`.

    >>> import unisono
    >>> unisono.config.functions_run_eagerly()
    False
    """
    return Mode.is_eager


# Gets the arguments, and a function that makes the call with these or others.
Observer = Callable[[tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]


@final
class Observers:
    """Who takes part.

    Attributes:
        current: called instead of each call that starts a program; None for nobody.
    """

    current: Observer | None = None


@contextlib.contextmanager
def observe_calls(observer: Observer) -> Iterator[None]:
    """Has a function called instead of each call that starts a program, in a block."""
    outer, Observers.current = Observers.current, observer
    program_cache.forget_last_calls()
    try:
        yield
    finally:
        Observers.current = outer
        program_cache.forget_last_calls()


def may_run_on_host(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Return whether a dataset's function makes a call, with numbers of the host.

    >>> may_run_on_host([1], {})
    False
    """
    is_told = ambient.is_in_dataset() and jax_traces.is_clean()
    return is_told and is_of_host(args, kwargs)


def is_of_host(*values: object) -> bool:
    """Return whether no array of JAX and no variable is in structures.

    >>> is_of_host({"x": 1.5}, [b"text"])
    True
    """
    return host_bodies.are_of_host(nest.leaves(values))
