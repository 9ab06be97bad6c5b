"""Exports one function of a model as a StableHLO program for one device."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import jax
from jax import export

from unisono._src.execution import function, host_inputs, specs
from unisono._src.foundation import ambient, nest
from unisono._src.state import function_frame, reading, storage, trace_versions
from unisono._src.state.variables import Variable

# The errors of JAX for a function that it cannot export, such as one that needs to
# know a size that the signature leaves open.
_FAILURES = (
    ValueError,
    NotImplementedError,
    TypeError,
    jax.errors.InconclusiveDimensionOperation,
)


@contextlib.contextmanager
def hold_single_copies(variables: Any) -> Iterator[None]:
    """Runs a block in which distributed variables are plain ones with one copy.

    The exported program is for one device and takes each variable as one array.
    """
    before = []
    try:
        # No step of another thread may change or donate an array while it is read.
        with storage.LOCK:
            for v in variables:
                cell = v.state_cell
                value = reading.read(v)
                known = cell.shape, cell.dtype, None, cell.name, cell.origin
                one = storage.Cell(storage.Policy.PLAIN, *known)
                one.array, one.aggregation = value, cell.aggregation
                before.append((v, cell))
                # Functions read a variable through its cell, so that
                # they find the single copy.
                v.state_cell = one
        yield
    finally:
        for v, cell in before:
            v.state_cell = cell


@final
class FunctionExporter:
    """Exports one function as a program.

    Args:
        owner: the number of the object that has the function; None for a signature.
        name: the name of the function.
        fn: the function, with an input signature.
        variables: the variables of the model, by number.
        platforms: the kinds of devices that the program can run on.

    Attributes:
        places: the owners of the function, and the names that it has there.
        program: the program, serialised, after `run`.
        uses: the numbers of the variables that the program takes.
        writes: the positions in `uses` of the variables it sets; known after `run`.
    """

    def __init__(
        self,
        owner: int | None,
        name: str,
        fn: Any,
        variables: Mapping[int, Variable],
        platforms: Sequence[str],
    ) -> None:
        self.places = [(owner, name)]
        self.program = b""
        self._fn = function.python_function(getattr(fn, "function", fn))
        self._conversion = function.find_conversion(getattr(fn, "function", fn))
        self._specs = tuple(fn.input_signature)
        self.uses = tuple(variables)
        self.writes: tuple[int, ...] = ()
        self._variables = list(variables.values())
        self._platforms = tuple(platforms)

    def name_arguments(self, owner: int | None) -> tuple[str, ...]:
        """Returns the names of the arguments that the signature describes.

        Args:
            owner: the object that has the function. For None, a signature, the names of
                the specs count before those of the function.
        """
        found = tuple(inspect.signature(self._fn).parameters)[: len(self._specs)]
        if owner is not None:
            return found
        pairs = zip(found, self._specs, strict=False)
        named = tuple(getattr(spec, "name", None) or name for name, spec in pairs)
        return named if len(set(named)) == len(named) else found

    def run(self) -> None:
        """Makes the program.

        The sizes that a signature leaves open may all differ. If the function does not
        allow that, the first axes of its arguments are one batch, of one size.

        Raises:
            ValueError: the function cannot be exported.
        """
        choices = [_to_abstract(self._specs)]
        if _count_open_batches(self._specs) > 1:
            choices.append(_to_abstract(self._specs, is_one_batch=True))
        for arguments in choices:
            try:
                attempt = functools.partial(self._export, arguments)
                self.program = self._conversion.retry(attempt)
            except host_inputs.NeedsHost:
                raise host_inputs.no_program_error(self._fn) from None
            except _FAILURES as error:
                failure = error
            else:
                return
        raise ValueError(
            f"The function {self.places[0][1]} cannot be exported for "
            f"{self._platforms}: {failure}"
        ) from failure

    def _export(self, arguments: tuple[Any, ...]) -> bytes:
        """Returns the program for arguments of some shapes and types, serialised."""
        weights = tuple(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in self._variables)
        kept = trace_versions.Versions(are_needed=True)
        # JAX must not reuse a trace in which variables had other values
        # (docs/decisions/0008).
        kept.advance()
        try:
            exported = export.export(
                jax.jit(lambda w, *args: self._call(w, args, kept)),
                platforms=self._platforms,
            )(weights, *arguments)
            return _serialize(exported)
        finally:
            kept.close()

    def _call(self, weights: Any, args: Any, kept: trace_versions.Versions) -> Any:
        """Traces the function with weights in place of the variables.

        Returns:
            The result, and the new values of the variables it sets.
        """
        # Read here and not before: `hold_single_copies` has replaced the cells.
        cells = [v.state_cell for v in self._variables]
        frame = function_frame.FunctionFrame(cells, weights, kept)
        with ambient.push(state=frame):
            frame.is_converted = self._conversion.is_on
            fn = self._conversion.choose(self._fn)
            result = nest.map_structure(_unwrap_variable, fn(*args))
            frame.finish()
        stray = [c for c in frame.values if c not in cells]
        if stray:
            names = ", ".join(f"'{c.name}' (created at {c.origin})" for c in stray)
            raise ValueError(
                f"it uses {names}, which the saved object does not have; make it an "
                "attribute"
            )
        self.writes = tuple(i for i, c in enumerate(cells) if c in frame.written)
        return result, [frame.values[cells[i]] for i in self.writes]


def _serialize(exported: export.Exported) -> bytes:
    """Returns a program as bytes, with the program of its gradient if it has one."""
    try:
        return bytes(exported.serialize(vjp_order=1))
    except _FAILURES:  # An operation cannot be differentiated, or not exported so.
        return bytes(exported.serialize())


def _unwrap_variable(x: object) -> Any:
    return x.value() if isinstance(x, Variable) else x


def _count_open_batches(signature: tuple[Any, ...]) -> int:
    """Returns how many arguments leave the size of their first axis open."""
    leaves = jax.tree.leaves(signature)
    shapes = [s.shape for s in leaves if isinstance(s, specs.TensorSpec)]
    return sum(bool(shape.rank) and shape[0] is None for shape in shapes)


def _to_abstract(signature: tuple[Any, ...], is_one_batch: bool = False) -> Any:
    """Returns shapes and types of arguments; a None in a shape becomes symbolic.

    Args:
        signature: the specs of the arguments.
        is_one_batch: whether all first axes that are None have the same size.
    """
    # One scope for all arguments: JAX compares symbolic sizes within a scope only.
    scope = export.SymbolicScope()
    # Each open size gets a name of its own, so that all may differ.
    count = iter(range(10_000))

    def size(axis: int, n: int | None) -> str:
        if n is not None:
            return str(n)
        return "batch" if is_one_batch and axis == 0 else f"d{next(count)}"

    def leaf(spec: object) -> Any:
        if not isinstance(spec, specs.TensorSpec):
            raise ValueError(f"expected TensorSpec in the signature, found {spec!r}")
        if spec.shape.rank is None:
            raise ValueError(f"the number of axes of {spec!r} is not known")
        text = ",".join(size(axis, n) for axis, n in enumerate(spec.shape))
        is_known = None not in spec.shape
        shape = spec.shape if is_known else export.symbolic_shape(text, scope=scope)
        return jax.ShapeDtypeStruct(shape, spec.dtype)

    return tuple(jax.tree.map(leaf, spec) for spec in signature)
