"""Whether functions of the process run compiled, or as plain Python."""

from __future__ import annotations

from typing import final

from unisono._src.execution import program_cache


@final
class Mode:
    """Says whether all functions of the process run as plain Python."""

    is_eager = False


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Make every `unisono.function` run as plain Python, or compiled again.

    Use it to look for a mistake: a debugger stops inside the function, and `print`
    shows values. The results are the same. Python code runs at every call, and numbers
    that a function returns stay Python's.

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
    """Whether functions run as plain Python; see `run_functions_eagerly`.

    >>> import unisono
    >>> unisono.config.functions_run_eagerly()
    False
    """
    return Mode.is_eager
