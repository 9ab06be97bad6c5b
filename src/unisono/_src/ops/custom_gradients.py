"""`custom_gradient`: functions whose gradients the program defines itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.execution.gradient_tape import GradientTape
from unisono._src.foundation import nest
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import tensors
from unisono._src.state import trace_versions, variables
from unisono._src.values import jax_tapes, jax_traces

__all__ = ["custom_gradient", "grad_pass_through", "recompute_grad"]


@everyday_name("custom_gradient")
def custom_gradient(f: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Returns a function that defines its own gradient.

    It works with `GradientTape`, `value_and_grad` and JAX's own gradients.

    Args:
        f: a function of arrays. It returns its result, one or more arrays, and a
            gradient function. This takes the gradients of the result, and returns those
            of the arguments. If `f` reads trainable variables, the gradient function
            must also take a list of them as `variables`. It then returns the gradients
            of the arguments, and a list of the gradients of the variables.

    Raises:
        TypeError: `f` reads trainable variables, and the gradient function takes no
            argument `variables`.
        ValueError: when the gradient is computed, the gradient function returns too few
            or too many gradients.

    >>> import unisono
    >>> @unisono.custom_gradient
    ... def log1pexp(x):
    ...     e = unisono.exp(x)
    ...
    ...     def gradient(upstream):
    ...         return upstream * (1 - 1 / (1 + e))
    ...
    ...     return unisono.math.log(1 + e), gradient
    >>> x = unisono.constant(100.0)
    >>> with unisono.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = log1pexp(x)
    >>> float(tape.gradient(y, x))
    1.0
    """
    if f is None:
        return custom_gradient

    @functools.wraps(f)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        given = nest.map_structure(tensors.tensor, args)
        result, gradient, read = _call(f, given, kwargs)
        _check_gradient(gradient, read)
        flat = [tensors.tensor(x) for x in nest.leaves(result)]
        # The variables come behind the arguments, as their gradients do.
        operands = [*nest.leaves(given), *map(tensors.tensor, read)]
        made = iter(_attach(flat, operands, _flatten(gradient, read, len(operands))))
        return nest.map_structure(lambda _: next(made), result)

    return decorated


def _call(
    f: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Any, Callable[..., Any], list[variables.Variable]]:
    """Returns the two results of `f`, and the trainable variables that it reads."""
    if jax_tapes.MISSING:  # A JAX without tapes, which could tell the variables.
        return *f(*args, **kwargs), []
    # Only to learn which variables are read; its gradient is never asked for.
    with GradientTape() as tape:
        result, gradient = f(*args, **kwargs)
    return result, gradient, list(tape.watched_variables())


def _check_gradient(gradient: Callable[..., Any], read: list[Any]) -> None:
    """Raises `TypeError` if a gradient cannot return those of variables, too."""
    parameters = inspect.signature(gradient).parameters.values()
    takes = any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)
    if read and not takes:
        raise TypeError(
            "If using @custom_gradient with a function that uses variables, then "
            "grad_fn must accept a 'variables' keyword argument. It uses "
            f"{[v.name for v in read]}."
        )


def _flatten(
    gradient: Callable[..., Any], read: list[variables.Variable], count: int
) -> Callable[..., list[Any]]:
    """Returns a gradient as a function that returns one list for all operands."""

    def flat(*upstream: Any) -> list[Any]:
        if read:
            own, of_variables = gradient(*upstream, variables=read)
        else:
            own, of_variables = gradient(*upstream), []
        found = own if isinstance(own, (list, tuple)) else [own]
        found = [*nest.leaves(list(found)), *of_variables]
        if len(found) != count:
            raise ValueError(
                f"custom_gradient function expected to return {count} gradients, but "
                f"returned {len(found)} instead."
            )
        return [None if x is None else tensors.tensor(x) for x in found]

    return flat


def _attach(
    results: list[jax.Array], operands: list[jax.Array], gradient: Callable[..., Any]
) -> list[jax.Array]:
    """Returns results whose gradients for operands `gradient` computes."""
    if jax_traces.is_clean():
        return results  # Nobody can ask for a gradient.
    kept, compute = _prepare(results, gradient)

    # The results are computed by now. This identity only gives them their gradient.
    @jax.custom_vjp
    def passed(results: Any, kept: Any, operands: Any) -> Any:
        return results

    def forward(results: Any, kept: Any, operands: Any) -> tuple[Any, Any]:
        # JAX differentiates this rule for a gradient of the gradient, in which the
        # results have the same gradient again.
        return passed(results, kept, operands), (kept, operands)

    def backward(saved: Any, upstream: Any) -> tuple[Any, Any, Any]:
        kept, operands = saved
        grads = compute(kept, upstream)
        fitted = [_fit(g, x) for g, x in zip(grads, operands, strict=True)]
        return None, None, fitted

    passed.defvjp(forward, backward)
    # Only through `passed` do gradients reach the operands.
    cut = jax.lax.stop_gradient(results)
    made: list[jax.Array] = passed(cut, kept, operands)
    return made


def _prepare(
    results: list[jax.Array], gradient: Callable[..., Any]
) -> tuple[list[Any], Callable[[Any, Any], Any]]:
    """Returns how to compute a gradient when it is asked for.

    Returns:
        The values around `gradient` that it needs, and a function of these values and
        of the gradients of the results.
    """

    def call(kept: Any, upstream: Any) -> Any:
        return gradient(*upstream)

    if jax_traces.is_eager(jax_tapes.trace_below_tapes(jax_traces.current())):
        # Only tapes can ask. Then the values around `gradient` are still there.
        return [], call
    # JAX may ask after the program that has these values is complete. So they become
    # arguments, and a gradient of the gradient finds what they depend on.
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results]

    def traced(*upstream: Any) -> Any:
        with trace_versions.traced_once():
            return gradient(*upstream)

    try:
        program, out = jax.make_jaxpr(traced, return_shape=True)(*shapes)
    except Exception as error:
        # Perhaps nobody asks. If a tape of the same program does, what failed because
        # it was traced by itself, such as an assignment, is possible.
        return [], _retry(call, error)
    structure = jax.tree.structure(out)

    def run(kept: Any, upstream: Any) -> Any:
        found = jax.core.eval_jaxpr(program.jaxpr, kept, *upstream)
        return jax.tree.unflatten(structure, found)

    return [jax_tapes.lower(x) for x in program.consts], run


def _retry(call: Callable[..., Any], error: Exception) -> Callable[[Any, Any], Any]:
    """Returns `call`, which raises `error` if the values that it needs are gone."""

    def again(kept: Any, upstream: Any) -> Any:
        try:
            return call(kept, upstream)
        except jax.errors.UnexpectedTracerError:
            raise error from None

    return again


def _fit(gradient: Any, operand: jax.Array) -> Any:
    """Returns a gradient in the form that JAX wants for an operand."""
    if gradient is None or not jnp.issubdtype(operand.dtype, jnp.inexact):
        return None
    return jnp.asarray(gradient, operand.dtype)


@everyday_name("grad_pass_through")
def grad_pass_through(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose gradient is that of the identity.

    Args:
        f: a function that returns an array with the shape of its argument.

    >>> import unisono
    >>> x = unisono.constant(1.7)
    >>> with unisono.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = unisono.grad_pass_through(unisono.round)(x)
    >>> float(y), float(tape.gradient(y, x))
    (2.0, 1.0)
    """

    @custom_gradient
    def passed(*args: Any, **kwargs: Any) -> Any:
        def gradient(upstream: Any, variables: Any = None) -> Any:
            if variables is not None:
                return upstream, [None] * len(variables)
            return upstream

        return f(*args, **kwargs), gradient

    return functools.wraps(f)(passed)


@everyday_name("recompute_grad")
def recompute_grad(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function whose result is computed again for its gradient.

    Until then, its intermediate results take no memory. It uses `jax.checkpoint`.

    Args:
        f: a function of arrays that returns one or more arrays.

    >>> import unisono
    >>> x = unisono.constant(3.0)
    >>> with unisono.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = unisono.recompute_grad(unisono.square)(x)
    >>> float(tape.gradient(y, x))
    6.0
    """

    @functools.wraps(f)
    def again(*args: Any, **kwargs: Any) -> Any:
        made = jax.checkpoint(functools.partial(f, **kwargs))
        return made(*nest.map_structure(tensors.tensor, args))

    return again
