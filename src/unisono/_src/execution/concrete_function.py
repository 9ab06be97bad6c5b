"""`ConcreteFunction`: a function for arguments of certain shapes and values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from unisono._src.execution import signature, traced_function
from unisono._src.execution.specs import PerReplicaSpec, TensorSpec
from unisono._src.foundation import errors, nest
from unisono._src.state import variable_identity, variables
from unisono._src.values import distributed

# The sizes that stand for one that a spec leaves open. A size of the result that is not
# the same for both is open, too.
# Not 1, which would broadcast against any other size.
_SIZES = (2, 3)


class ConcreteFunction:
    """A compiled function for arguments of certain shapes, types and values.

    `Function.get_concrete_function` returns one.

    Attributes:
        inputs: the `TensorSpec` of each array argument, then of each variable that the
            function uses.
        outputs: the `TensorSpec` of each array of the result.
        structured_outputs: the result, with a `TensorSpec` in place of each array.
        structured_input_signature: the positional and the keyword arguments, with a
            `TensorSpec` in place of each array.
        variables: the variables that the function uses.
        name: the name of the function.

    >>> import unisono
    >>> v = unisono.Variable(1.0)
    >>> @unisono.function
    ... def scale(x, factor):
    ...     return {"y": x * factor + v}
    >>> triple = scale.get_concrete_function(unisono.TensorSpec((2,)), 3.0)
    >>> triple.structured_outputs
    {'y': TensorSpec(shape=(2,), dtype=float32, name=None)}
    >>> len(triple.inputs), triple.variables[0] is v
    (2, True)
    >>> triple(np.ones(2, np.float32))["y"].tolist()
    [4.0, 4.0]
    """

    def __init__(
        self,
        call: Callable[..., Any],
        parameters: inspect.Signature,
        given: tuple[tuple[Any, ...], dict[str, Any]],
        traces: Sequence[traced_function.TracedFunction],
    ) -> None:
        # Traces for different sizes differ in the shapes of results only.
        first = traces[0]
        self._call = call
        self._parameters = parameters
        self._bound = parameters.bind(*given[0], **given[1])
        self._bound.apply_defaults()
        self.name = first.name
        self.structured_input_signature = (self._bound.args, self._bound.kwargs)
        # In the order of the program's inputs.
        cells = dict.fromkeys([*first.read, *first.written])
        found = [variable_identity.find(cell) for cell in cells]
        self.variables = tuple(v for v in found if v is not None)
        specs = [x for x in nest.leaves(list(given)) if isinstance(x, TensorSpec)]
        captured = [TensorSpec(v.shape, v.dtype, v.name) for v in self.variables]
        self.inputs = [*specs, *captured]
        self.outputs = _output_specs(traces)
        self.structured_outputs = _structure(first.outputs, self.outputs)

    @property
    def array_arguments(self) -> dict[str, Any]:
        """The arguments that contain arrays, by name, with a spec for each array.

        >>> import unisono
        >>> scale = unisono.function(lambda x, factor: x * factor)
        >>> scale.get_concrete_function(unisono.TensorSpec((2,)), 3.0).array_arguments
        {'x': TensorSpec(shape=(2,), dtype=float32, name=None)}
        """
        return {
            name: value
            for name, value in self._bound.arguments.items()
            if any(isinstance(x, TensorSpec) for x in nest.leaves(value))
        }

    @property
    def trainable_variables(self) -> tuple[variables.Variable, ...]:
        """The variables that optimizers should update.

        >>> import unisono
        >>> v = unisono.Variable(1.0, trainable=False)
        >>> read = unisono.function(lambda: v + 1.0).get_concrete_function()
        >>> len(read.variables), read.trainable_variables
        (1, ())
        """
        return tuple(v for v in self.variables if v.trainable)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the compiled function.

        Args:
            *args: the arguments. Those that are no arrays were given before and may be
                left out.
            **kwargs: keyword arguments.

        Returns:
            The result of the function, with numbers as arrays.

        Raises:
            TypeError: an array is missing, or another value was given before.
            InvalidArgumentError: an array has another shape or type.
        """
        call = self._complete(args, kwargs)
        return self._call(*call.args, **call.kwargs)

    def _trace_call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> traced_function.TracedCall:
        """Return the trace of a call, without running it; see `function`."""
        call = self._complete(args, kwargs)
        # A method of the `Function` that this was made of, which has the trace.
        owner: Any = self._call.__self__  # type: ignore[attr-defined]
        found: traced_function.TracedCall = owner._trace_call(  # noqa: SLF001
            call.args, call.kwargs
        )
        return found

    def _complete(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> inspect.BoundArguments:
        """Return the arguments of a call, with those that were given before."""
        given = self._parameters.bind_partial(*args, **kwargs).arguments
        for name, wanted in self._bound.arguments.items():
            if name in given:
                given[name] = _check_argument(name, given[name], wanted)
            elif any(isinstance(x, TensorSpec) for x in nest.leaves(wanted)):
                raise TypeError(
                    f"missing a required argument: '{name}'. It is one of the arrays "
                    f"of this concrete function: {wanted!r}."
                )
            else:
                given[name] = wanted
        # In the order of the parameters, in which `BoundArguments` reads them.
        ordered = {name: given[name] for name in self._bound.arguments}
        return inspect.BoundArguments(self._parameters, ordered)

    def __repr__(self) -> str:
        return f"<ConcreteFunction {self.name}{self._bound.arguments}>"


def sizes_of(given: object) -> Sequence[int]:
    """Return the sizes to trace a function with, in place of those left open."""
    specs = (x for x in nest.leaves(given) if isinstance(x, TensorSpec))
    is_open = any(not s.shape.is_fully_defined() for s in specs)
    return _SIZES if is_open else _SIZES[:1]


def as_specs(tree: object) -> Any:
    """Return arguments with a `TensorSpec` in place of each array."""

    def leaf(x: Any) -> Any:
        is_array = isinstance(x, (jax.Array, np.ndarray, np.generic))
        return TensorSpec(x.shape, jax.typeof(x).dtype) if is_array else x

    return nest.map_structure(leaf, tree)


def key_of(given: object) -> Any:
    """Return a key that is equal for arguments with equal specs and values."""

    def leaf(x: object) -> Any:
        return (TensorSpec, x.shape, x.dtype) if isinstance(x, TensorSpec) else x

    return signature.flatten(nest.map_structure(leaf, given), [], None)


def placeholders(tree: object, size: int) -> Any:
    """Return arguments with an array that takes no memory in place of each spec.

    Args:
        tree: the arguments.
        size: the size of axes that a spec leaves open.

    Raises:
        ValueError: the number of axes of a spec is open.
    """

    def leaf(x: object) -> Any:
        if not isinstance(x, TensorSpec):
            return x
        if x.shape.rank is None:
            raise ValueError(
                f"{x} leaves the number of axes open, for which XLA has no program. "
                "Give a shape, with None for axes of any size."
            )
        shape = [size if side is None else side for side in x.shape]
        zero = np.zeros((), jax.dtypes.canonicalize_dtype(x.dtype))
        return np.broadcast_to(zero, shape).view(traced_function.Placeholder)

    return nest.map_structure(leaf, tree)


def _output_specs(traces: Sequence[traced_function.TracedFunction]) -> list[TensorSpec]:
    """Return the specs of a result, with open sizes where the traces differ.

    Raises:
        ValueError: the results of the traces have different structures.
    """
    if any(t.outputs != traces[0].outputs for t in traces):
        raise ValueError(
            "The result has another structure for another size of an axis that the "
            "TensorSpec leaves open. Give all sizes."
        )
    columns = zip(*(t.result_avals() for t in traces), strict=True)
    return [_join_specs(column) for column in columns]


def _join_specs(avals: Sequence[Any]) -> TensorSpec:
    """Return the spec of arrays that differ in open sizes only."""
    sides = zip(*(a.shape for a in avals), strict=True)
    shape = [side[0] if len(set(side)) == 1 else None for side in sides]
    return TensorSpec(shape, avals[0].dtype)


def _structure(outputs: object, specs: Sequence[TensorSpec]) -> Any:
    """Return a result with specs in place of arrays."""

    def leaf(x: object) -> Any:
        if not isinstance(x, distributed.PerReplica):
            return x
        # The arrays of replicas have a row for each.
        rows = [TensorSpec(r.shape[1:], r.dtype) for r in jax.tree.leaves(x)]
        return PerReplicaSpec(*rows * x.count) if len(rows) == 1 else rows

    return nest.map_structure(leaf, signature.rebuild(outputs, iter(specs)))


def _check_argument(name: str, given: Any, wanted: Any) -> Any:
    """Return an argument of a call, once it is what the function was made for.

    Raises:
        TypeError: it has another structure, or a value differs.
        InvalidArgumentError: an array has another shape or type.
    """
    if nest.is_nested(wanted):
        is_like = nest.is_nested(given) and len(given) == len(wanted)
        if not is_like or type(given) is not type(wanted):
            raise TypeError(f"'{name}' must be like {wanted!r}, received {given!r}.")
        pairs = zip(nest.children(given), nest.children(wanted), strict=True)
        return nest.rebuild(given, [_check_argument(name, g, w) for g, w in pairs])
    if isinstance(wanted, TensorSpec):
        try:
            return signature.apply_specs([given], [wanted])[0]
        except TypeError:
            raise errors.InvalidArgumentError(
                f"'{name}' must be an array of {wanted}, received {given!r}."
            ) from None
    if given is not wanted and given != wanted:
        raise TypeError(
            f"This concrete function was made for {name}={wanted!r}, received "
            f"{given!r}. Call the function itself, or make another concrete function."
        )
    return given
