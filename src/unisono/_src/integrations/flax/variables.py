"""Flax NNX variables whose values are kept in variables of a strategy, and saved.

An `nnx.Variable` has its value in one slot, `_raw_value`. A variable made in a scope
becomes an object of a subclass in which `_raw_value` is a property: it reads and writes
a `unisono.Variable` through the current state frame. The copies that NNX makes of it,
for `nnx.split` or inside `nnx.grad`, have a plain value in the slot and behave as in
NNX. A variable made in a scope inside `nnx.vmap` or another transformation becomes such
an object when the transformation returns it. See docs/decisions/0014.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import MemberDescriptorType
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from unisono._src.foundation import ambient, library_hooks
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.integrations import kept_variables
from unisono._src.integrations.flax import internals
from unisono._src.saving.checkpoint import restore_values
from unisono._src.state import assignment, frames, reading, variables
from unisono._src.state.variables import Variable
from unisono._src.values import jax_tapes, jax_traces

# The slot itself, which the property of the subclass hides. For a variable made in a
# scope it holds the `unisono.Variable`, or a `_SplitState` around it.
_raw_slot = internals.RAW_VALUE
# Kinds of variables that depend on the examples of a batch, and so are no state.
TRANSIENT = (nnx.Intermediate, nnx.Cache)
# Marks, in its metadata, a variable that was made in a scope inside a transformation.
# NNX gives the metadata to the variable that the transformation returns.
_MADE_INSIDE = "unisono_made_inside"

T = TypeVar("T")
# A replica or a program: the state frame, and the number of the replica's copy.
_Context = tuple[frames.StateFrame, int | None]


@final
class _SplitState:
    """Random state that has other shapes for a while.

    `nnx.split_rngs` gives a stream as many keys as there are layers, and afterwards
    its one key again. The `unisono.Variable` has one shape for ever, so it stays as it
    is meanwhile.

    Args:
        kept: the variable of the strategy.

    Attributes:
        values: the values by the context that has set them: replicas that take turns,
            and programs, have values of their own.
    """

    def __init__(self, kept: variables.Variable) -> None:
        self.kept = kept
        self.values: dict[_Context, jax.Array] = {}

    def read(self) -> jax.Array:
        """Return the value of the running context.

        Raises:
            RuntimeError: the state was split outside, for other contexts too.
        """
        context = _context()
        if context in self.values:
            return self.values[context]
        self.check(context)
        return reading.read(self.kept)

    def check(self, context: _Context | None = None) -> None:
        """Raise if the state was split outside replicas and programs, and not here."""
        if _OUTSIDE in self.values and context != _OUTSIDE:
            raise RuntimeError(
                f"The random state '{self.kept.name}' is split into "
                f"{self.values[_OUTSIDE].shape} by nnx.split_rngs. A strategy keeps "
                f"it in the shape {self.kept.shape}. Call nnx.restore_rngs before "
                "strategy.run, a unisono.function or a checkpoint uses it, and split "
                "it inside `run`."
            )


_OUTSIDE = (frames.EAGER, None)


def _context() -> _Context:
    """Return a mark of the replica or program that splits random state."""
    # A program for all replicas has no `copy`, but a frame of its own.
    return frames.frame(), ambient.current().copy


@final
class _KeptVariable:
    """The behaviour of a variable made in a scope; `_make_kept_class` mixes it in."""

    # `__class__` of an object can be changed to a class with the same slots only.
    __slots__ = ()

    # Lower layers ask for this attribute to recognize a variable of a strategy.
    @property
    def _unisono_variable(self) -> variables.Variable:
        held = _find_kept(self)
        if held is None:
            raise AttributeError(
                f"This {type(self).__name__} is a copy made by NNX, which belongs to "
                "no strategy. Use the variable of the model itself."
            )
        return held

    @property
    def _raw_value(self) -> object:
        held = _raw_slot.__get__(self)
        if isinstance(held, variables.Variable):
            return reading.read(held)
        return held.read() if isinstance(held, _SplitState) else held

    @_raw_value.setter
    def _raw_value(self, value: Any) -> None:
        held = _find_kept(self)
        late = _postponed.get(threading.get_ident())
        if held is None or isinstance(value, variables.Variable):
            _raw_slot.__set__(self, value)
        elif isinstance(self, nnx.RngState) and _set_aside(self, held, value):
            return
        elif late is not None:
            late.append((held, value))
        else:
            kept_variables.assign(held, assignment.REPLACE, value)

    # NNX refuses to change a variable inside a program that did not make it, because
    # a traced value would leak. Here the state frame returns it from the program.
    # mypy does not know the NNX class that stands after this one in the subclass.

    @property
    def _can_update(self) -> bool:
        return _find_kept(self) is not None or super()._can_update  # type: ignore[misc]

    def _check_can_update(self) -> None:
        if _find_kept(self) is None:
            super()._check_can_update()  # type: ignore[misc]

    # What is shown of a variable that workers have in parts is the part here.

    def __nnx_repr__(self) -> Iterator[object]:
        part = _show_part(self)
        shown: Any = super() if part is None else part
        found: Iterator[object] = shown.__nnx_repr__()
        return found

    def __treescope_repr__(self, path: object, subtree_renderer: object) -> object:
        part = _show_part(self)
        shown: Any = super() if part is None else part
        found: object = shown.__treescope_repr__(path, subtree_renderer)
        return found


def _find_kept(variable: object) -> variables.Variable | None:
    """Return the variable of the strategy that keeps the value, or None."""
    try:
        held = _raw_slot.__get__(variable)
    except AttributeError:
        return None  # NNX is creating it; the slot is empty.
    if isinstance(held, _SplitState):
        return held.kept
    return held if isinstance(held, variables.Variable) else None


def _show_part(variable: Any) -> Any:
    """Return a copy with the part of a value that is here; None if all of it is."""
    kept = _find_kept(variable)
    if kept is None or not reading.has_part(kept):
        return None
    # NNX's copy has a plain value, and is kept nowhere.
    made = variable.replace(kept.local_part)
    made.set_metadata("part", reading.name_part(kept))
    return made


def check_not_split(variable: object) -> None:
    """Raise if a variable is random state that was split outside replicas."""
    held = _raw_slot.__get__(variable)
    if isinstance(held, _SplitState):
        held.check()


@contextlib.contextmanager
def lend(variable: nnx.Variable[Any]) -> Iterator[variables.Variable]:
    """Give the variable that keeps the value; for the block only, if it has none."""
    kept = _find_kept(variable)
    if kept is not None:
        check_not_split(variable)
        yield kept
        return
    kind, value = type(variable), _raw_slot.__get__(variable)
    _adopt(variable)
    try:
        yield _raw_slot.__get__(variable)
    finally:
        object.__setattr__(variable, "__class__", kind)
        _raw_slot.__set__(variable, value)


def _set_aside(variable: object, kept: variables.Variable, value: jax.Array) -> bool:
    """Keep a value of another shape beside the variable of the strategy.

    Returns:
        Whether the value has another shape. A value of the variable's own shape ends
        what was set aside in this context, and is assigned as any other.
    """
    held, context = _raw_slot.__get__(variable), _context()
    if getattr(value, "shape", kept.shape) != kept.shape:
        if not isinstance(held, _SplitState):
            held = _SplitState(kept)
            _raw_slot.__set__(variable, held)
        held.values[context] = value
        return True
    if isinstance(held, _SplitState):
        held.values.pop(context, None)
        if not held.values:
            _raw_slot.__set__(variable, kept)
    return False


# The assignments that each thread, by its id, makes after `unflatten`. No lock: a
# thread reads and writes its own entry only.
_postponed: dict[int, list[tuple[variables.Variable, Any]]] = {}


def wrap_unflatten(original: Callable[..., T]) -> Callable[..., T]:
    """Return a `graphlib.unflatten` that assigns to variables when it is done.

    The original empties objects and fills them again, with assignments in between. In
    an assignment, replicas that take turns switch to the next replica, and that one
    would find the objects empty. So the assignments wait until all are filled.

    Outside replicas the current strategy adopts the variables in the result that were
    made in its scope, inside a transformation.
    """

    @functools.wraps(original)
    def unflatten(*args: object, **kwargs: object) -> T:
        frame, thread = ambient.current(), threading.get_ident()
        port = frame.port
        if port is None and frame.mode != ambient.REPLICA and jax_traces.is_clean():
            return _adopt_below(original(*args, **kwargs))
        if port is None or port.is_spmd or port.replicas == 1 or thread in _postponed:
            return original(*args, **kwargs)
        waiting = _postponed.setdefault(thread, [])
        try:
            made = original(*args, **kwargs)
        finally:
            del _postponed[thread]
        for held, value in waiting:
            kept_variables.assign(held, assignment.REPLACE, value)
        return made

    return unflatten


@functools.cache
def _make_kept_class(kind: type) -> type:
    """Return the subclass of a variable class whose values a strategy keeps."""
    # It shows the names of the original class, in messages and to NNX's filters.
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (_KeptVariable, kind), names)


def wrap_creation(
    original: Callable[..., nnx.Variable[Any]],
) -> Callable[..., nnx.Variable[Any]]:
    """Return the call of a variable class; the current strategy adopts the result."""

    @functools.wraps(original)
    def create(kind: type, *args: object, **kwargs: object) -> nnx.Variable[Any]:
        made = original(kind, *args, **kwargs)
        if ambient.current().strategy is None or frames.frame().is_compiled:
            return made
        if jax_traces.is_clean():
            _adopt(made)
        elif _may_be_kept(made):
            # Its value is that of one layer of many, for example: JAX gives the value
            # of the variable to what the transformation returns.
            made.set_metadata(_MADE_INSIDE, True)
        return made

    return create


def wrap_current_trace(original: Callable[[], T]) -> Callable[[], T]:
    """Return a `current_jax_trace` that does not count the programs of a strategy.

    NNX refuses to change what another trace has made, because a traced value would
    leak. The values of variables made in a scope do not: the state frame returns them
    from the program. Neither do those that are assigned in the block of a gradient
    tape. Inside gradients and other transformations NNX's rule stands.
    """

    @functools.wraps(original)
    def current() -> T:
        trace = jax_tapes.trace_below_tapes(jax_traces.current())
        if any(trace is t for t in frames.frame().traces):
            with jax_traces.compute_at_once():  # Here JAX is outside every trace.
                return original()
        with jax_traces.enter(trace):
            return original()

    return current


def _adopt_below(node: T) -> T:
    """Adopt the variables of a node that were made inside a transformation."""
    for _, found in nnx.iter_graph(node):
        if not isinstance(found, nnx.Variable):
            continue
        is_marked = _MADE_INSIDE in found.get_metadata()
        # A variable without a value, as after `nnx.eval_shape`, stays marked.
        if is_marked and isinstance(found.get_raw_value(), jax.Array):
            internals.remove_metadata(found, _MADE_INSIDE)
            _adopt(found)
    return node


def _may_be_kept(made: nnx.Variable[Any]) -> bool:
    """Return whether the value of a variable is state that a strategy can keep."""
    # With `hijax` or `ref` the slot holds no array but a reference of JAX's own.
    return not (isinstance(made, TRANSIENT) or made.hijax or made.ref)


def _adopt(made: nnx.Variable[Any]) -> None:
    """Move the value of a new variable into a variable of the current strategy."""
    if not _may_be_kept(made):
        return
    value = jax_tapes.lower(made.get_raw_value())
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return
    options = _choose_options(made, value)
    kept = kept_variables.make(value, name=type(made).__name__, **options)
    kind: Any = type(made)
    if not issubclass(kind, _KeptVariable):  # A copy made by NNX is of the class.
        # NNX's own `__setattr__` would ask which trace may change the variable.
        object.__setattr__(made, "__class__", _make_kept_class(kind))
    _raw_slot.__set__(made, kept)


def _choose_options(made: nnx.Variable[Any], value: jax.Array) -> dict[str, Any]:
    """Return the options of the strategy's variable for an NNX variable."""
    if isinstance(made, nnx.metrics.MetricState):
        return {
            "trainable": False,
            "synchronization": VariableSynchronization.ON_READ,
            "aggregation": VariableAggregation.SUM,
        }
    if isinstance(made, nnx.Param):
        return {"trainable": True}
    aggregation = kept_variables.aggregation_of_state(value.dtype)
    return {"trainable": False, "aggregation": aggregation}


# Variables made outside every scope, as gradient tapes follow them.


def wrap_raw_value(slot: MemberDescriptorType) -> property:
    """Return a property in the place of the slot that has the value of a variable.

    A read is followed by open tapes; a value that is assigned to a variable loses its
    gradient.
    """

    def get(self: nnx.Variable[Any]) -> object:
        tape, value = ambient.current().tape, slot.__get__(self)
        if tape is None:
            return value
        is_trainable = isinstance(self, nnx.Param)
        return kept_variables.follow(tape, self, value, is_trainable)

    def set_value(self: nnx.Variable[Any], value: object) -> None:
        if ambient.current().tape is not None and _has_array(self, slot):
            value = frames.strip_gradient(value)
        slot.__set__(self, value)

    return property(get, set_value)


def _has_array(variable: object, slot: MemberDescriptorType) -> bool:
    """Return whether a variable has an array of its own.

    A copy that NNX makes, as for `nnx.jit`, is empty first, or has a traced value. It
    passes values on, with their gradients.
    """
    try:
        value = slot.__get__(variable)
    except AttributeError:
        return False
    return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


@final
class _SavedFlaxVariable(library_hooks.LibraryVariable):
    """An NNX variable as a checkpoint sees it, whether made in a scope or not."""

    @property
    def strategy_variable(self) -> Variable | None:
        return getattr(self.owner, "_unisono_variable", None)

    @property
    def name(self) -> str:
        return type(self.owner).__name__

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.owner.get_raw_value().shape)

    @property
    def dtype(self) -> np.dtype:
        found: np.dtype = self.owner.get_raw_value().dtype
        return found

    def read(self, is_detached: bool) -> jax.Array:
        kept = self.strategy_variable
        if kept is not None:
            check_not_split(self.owner)
            return reading.read(kept)
        value = self.owner.get_raw_value()
        # Outside a strategy the program's own `nnx.jit` may donate the array.
        return jnp.copy(value) if is_detached else value

    def assign(self, value: ArrayLike) -> None:
        kept = self.strategy_variable
        if kept is not None:
            check_not_split(self.owner)
            restore_values.assign(kept, value)
            return
        old = self.owner.get_raw_value()
        # Random keys are restored as keys; they are no numbers to be converted.
        if not jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            value = jax.device_put(jnp.asarray(value, old.dtype), old.sharding)
        self.owner.set_raw_value(value)

    def lend(self) -> contextlib.AbstractContextManager[Variable]:
        return lend(self.owner)


def _hold(variable: nnx.Variable[Any]) -> _SavedFlaxVariable | None:
    """Return the object that stands for a variable, or None if it is no state."""
    if isinstance(variable, TRANSIENT):
        return None
    value = getattr(variable, "_unisono_variable", None)
    if value is None and not isinstance(variable.get_raw_value(), jax.Array):
        return None
    return kept_variables.hold(_SavedFlaxVariable, variable)


def _variable_tree(obj: object) -> dict[str, Any]:
    """Return the variables of an object in nested dicts, by the names of their path."""
    found: dict[str, Any] = {}
    for path, value in nnx.iter_graph(obj):
        held = _hold(value) if isinstance(value, nnx.Variable) else None
        if held is None:
            continue
        at = found
        for name in path[:-1]:
            at = at.setdefault(str(name), {})
        at[str(path[-1])] = held
    return found


def _make_branches(obj: object, tree: dict[str, Any]) -> dict[str, Any]:
    return {
        name: library_hooks.Branch(obj, functools.partial(_make_branches, obj, value))
        if isinstance(value, dict)
        else value
        for name, value in tree.items()
    }


@final
class _FlaxStateFinder(library_hooks.StateFinder):
    """Finds the state of modules, optimizers, metrics, random streams and variables."""

    def __getitem__(
        self, obj: object
    ) -> library_hooks.LibraryVariable | dict[str, Any] | None:
        if isinstance(obj, nnx.Variable):
            return _hold(obj)
        if not isinstance(obj, nnx.Pytree | nnx.State):
            return None
        return _make_branches(obj, _variable_tree(obj))

    def make_forward(self, obj: object) -> None:
        """Return None, or raise for a module: NNX does not know its inputs."""
        if not isinstance(obj, nnx.Module):
            return None
        raise ValueError(
            f"Flax does not say what the inputs of a {type(obj).__name__} are. Give "
            "the function to export: saved_model.save(model, path, "
            "signatures=unisono.function(lambda x: model(x), "
            "input_signature=[unisono.TensorSpec([None, 3], 'float32')]))."
        )


STATE_FINDER = _FlaxStateFinder()
