"""`value_and_grad` and `grad` with respect to variables: JAX has no tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from unisono._src import ambient, state, variables


def value_and_grad(
    fn: Callable[..., Any], variables_: Any, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives ``fn``'s value and its gradient for each variable.

    Args:
        fn: returns a scalar, or ``(scalar, aux)`` with `has_aux`. Variables that it
            assigns keep their new values.
        variables_: a variable or a sequence of them.
        has_aux: whether `fn` returns auxiliary data.

    Returns:
        A function of `fn`'s arguments that returns ``(value, gradients)``; the
        gradients are a list in the order of the variables (one array for a single
        variable). In replica context they are the replica's own, not reduced.

    >>> v = variables.Variable(3.0)
    >>> value, (gradient,) = value_and_grad(lambda x: v * v * x, [v])(2.0)
    >>> float(value), float(gradient)
    (18.0, 12.0)
    """
    single = isinstance(variables_, variables.Variable)
    wanted = [variables_] if single else list(variables_)
    _check(wanted)

    @functools.wraps(fn)
    def compute(*args: Any, **kwargs: Any) -> Any:
        parent = state.frame()
        cells = [v._cell for v in wanted]

        def pure(inputs: Sequence[Any]) -> Any:
            overlay = state.GradientFrame(parent, dict(zip(cells, inputs, strict=True)))
            with ambient.pushed(state=overlay), parent.versions.fresh():
                return fn(*args, **kwargs)

        current = [v.value() for v in wanted]
        value, gradients = jax.value_and_grad(pure, has_aux=has_aux)(current)
        return value, gradients[0] if single else list(gradients)

    return compute


def grad(
    fn: Callable[..., Any], variables_: Any, has_aux: bool = False
) -> Callable[..., Any]:
    """Like `value_and_grad`, without the value.

    Args:
        fn: returns a scalar, or ``(scalar, aux)`` with `has_aux`.
        variables_: a variable or a sequence of them.
        has_aux: whether `fn` returns auxiliary data.

    Returns:
        A function that returns the gradients, or ``(gradients, aux)``.
    """
    both = value_and_grad(fn, variables_, has_aux)

    @functools.wraps(fn)
    def compute(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return compute


def _check(wanted: Sequence[Any]) -> None:
    for v in wanted:
        if not isinstance(v, variables.Variable):
            raise TypeError(
                "Expected variables to differentiate with respect to, received "
                f"{type(v).__name__}: {v!r}. For plain arrays use jax.value_and_grad."
            )
        if v._cell.policy is state.Policy.ON_READ and v._cell.copies > 1:
            frame = ambient.current()
            if frame.mode != ambient.REPLICA:
                raise ValueError(
                    f"The variable '{v.name}' holds a value per replica; its gradient "
                    "is defined in replica context only."
                )
