"""Recordings: what a gradient tape needs of JAX's internals, all in this module.

JAX differentiates functions, not blocks of code. But it linearizes a function by making
an `ad.LinearizeTrace` current: operations then compute their values as usual, and write
a program of their tangents. A recording makes such a trace current for a block. The
gradient is the transpose of the tangent program. See docs/decisions/0024.

A value that a recording follows is a `TapeTracer`. After the block it goes on as the
array that it stands for: it has that array's methods, and every trace of JAX that meets
it takes the array.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, jax_internals
from unisono._src.values import jax_traces
from unisono._src.values.array_operators import HasDtype

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

_T = TypeVar("_T")
# JAX's tracers of the program of tangents.
_Tangent: TypeAlias = "jax.core.Tracer[Any]"

# What the installed JAX does not have of what tapes are made of.
MISSING = jax_internals.find_missing(jax_internals.TAPES)

# Under short names, because operations on a tape look them up.
_Literal, _Var = jax_internals.Literal, jax_internals.Var
_TraceTag, _full_lower = jax_internals.TraceTag, jax_internals.full_lower
_new_eqn, _no_effects = jax_internals.new_jaxpr_eqn, jax_internals.no_effects
_set_current_trace = jax_internals.set_current_trace
_trace_context = jax_internals.trace_context
_LinearizeTrace = jax_internals.LinearizeTrace
_LinearizeTracer = jax_internals.LinearizeTracer
_ValAccum, _Zero = jax_internals.ValAccum, jax_internals.Zero
_backward_pass, _dce_jaxpr = jax_internals.backward_pass, jax_internals.dce_jaxpr
_TangentTrace = jax_internals.DynamicJaxprTrace
_shard_args = jax_internals.shard_args
_shard_arg_handlers = jax_internals.shard_arg_handlers
_add_p, _debug_info = jax_internals.add_jaxvals_p, jax_internals.debug_info
_source_info = jax_internals.current_source


# Values.


@final
class TapeTracer(_LinearizeTracer):  # type: ignore[misc, valid-type]
    """A value that a recording follows: the array `primal`, and its `tangent`."""

    __slots__ = ()

    # A trace that meets a tracer of another trace asks it for these two before it
    # refuses it. After the block both answer with the array (decision 0024).
    def full_lower(self) -> object:
        """Returns what an evaluating trace takes in place of this value."""
        return self if self._trace.is_recording else _full_lower(self.primal)

    @property
    def dimension_as_value(self) -> Callable[[], jax.Array] | None:
        """A function that JAX calls to get a value that it makes part of a program."""
        return None if self._trace.is_recording else lambda: self.primal

    # Python's protocols are looked up on the class, so each needs a method.


# Attributes that an array has and a tracer refuses, or shows as those of a tracer.
_OF_ARRAYS = (
    "__array__", "__bool__", "__complex__", "__dlpack__", "__float__", "__format__",
    "__index__", "__int__", "__reduce__", "__repr__", "__str__",
    "addressable_data", "addressable_shards", "block_until_ready", "committed",
    "copy_to_host_async", "delete", "device", "devices", "global_shards",
    "is_deleted", "is_fully_addressable", "is_fully_replicated", "item", "nbytes",
    "numpy", "on_device_size_in_bytes", "sharding", "tobytes", "tolist",
    "unsafe_buffer_pointer",
)  # fmt: skip


def _forward(name: str) -> property:
    return property(lambda self: getattr(self.primal, name))


for _name in _OF_ARRAYS:
    setattr(TapeTracer, _name, _forward(_name))
del _name


def lower(x: _T) -> _T:
    """Returns the array that a value of a tape that has ended stands for.

    Anything else is returned as it is.
    """
    while isinstance(x, TapeTracer) and not jax_traces.trace_of(x).is_open:
        x = x.primal
    return x


def trace_below_tapes(trace: jax.core.Trace) -> jax.core.Trace:
    """Returns the trace that is below the recordings of `trace`."""
    while isinstance(trace, _TapeTrace):
        trace = trace.parent_trace
    return trace


def is_followed(x: object, level: jax.core.Trace) -> bool:
    """Whether a gradient that the running code is in depends on `x`.

    Args:
        x: a value.
        level: the trace around the gradients that count.
    """
    trace: Any = jax_traces.current()
    while trace is not level:
        if isinstance(trace, _TapeTrace):
            if trace.is_recording and trace.find_tangent(x) is not None:
                return True
        elif isinstance(x, jax.core.Tracer) and jax_traces.trace_of(x) is trace:
            return True
        trace = trace.parent_trace
    return False


def is_traced(x: object) -> bool:
    """Whether the numbers of `x` are not known yet.

    Those of a value that an eager tape follows are known.
    """
    while isinstance(x, TapeTracer):
        x = x.primal
    return isinstance(x, jax.core.Tracer)


def has_tracer(tree: object) -> bool:
    """Whether any array in `tree` is a tracer: a value of a program being made."""
    return any(
        isinstance(x, jax.core.Tracer) and isinstance(lower(x), jax.core.Tracer)
        for x in jax.tree.leaves(tree)
    )


def _place(xs: Sequence[object], *where: object) -> object:
    """Returns values on devices, for `jax.device_put` and arguments of programs."""
    return _shard_args(*where, [lower(x) for x in xs])


if not MISSING:
    # By this table JAX puts arguments on devices; it has no entry for tracers.
    _shard_arg_handlers[TapeTracer] = _place


def go_back(trace: jax.core.Trace) -> None:
    """Makes a trace current again, whatever was made current since."""
    _trace_context.set_trace(trace)


@contextlib.contextmanager
def leave_tapes() -> Iterator[None]:
    """Runs a block that no tape around it sees."""
    around = jax_traces.current()
    with ambient.push(tape=None):
        go_back(trace_below_tapes(around))
        try:
            yield
        finally:
            go_back(around)


def renew(x: jax.Array) -> jax.Array:
    """Returns an array as a new object, in the same memory if that is possible.

    Tapes follow arrays by their identity. What TensorFlow computes is a new tensor,
    also where there is nothing to do, as in the sum over one replica.
    """
    # An open tape must see the operation.
    if jax_traces.is_clean() and len(x.sharding.device_set) == 1:
        return x.addressable_data(0)
    return jnp.array(x, copy=True)


def is_float(x: HasDtype) -> bool:
    """Whether a value can have a gradient: its numbers are floats or complex."""
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


# Traces.


@final
class _TapeTrace(_LinearizeTrace):  # type: ignore[misc, valid-type]
    """The trace that is current while a recording is open.

    Attributes:
        is_open: whether the block has not ended.
        is_recording: whether operations are recorded; if not, they pass through.
        watched: arrays that are followed, with their tangents, by their ids. The
            arrays are kept so that the ids are not given to others.
        used: weak references to values that operations took and that are not followed,
            by their ids.
    """

    def __init__(self, parent: jax.core.Trace, tangents: jax.core.Trace) -> None:
        super().__init__(parent, tangents, is_vjp=True)
        self.is_open = self.is_recording = True
        self.watched: dict[int, tuple[object, _Tangent]] = {}
        self.used: dict[int, weakref.ref[object]] = {}

    def strip(self, x: _T) -> _T:
        """Returns a value as this trace meets it: without what gradients inside add."""
        while isinstance(x, _LinearizeTracer):
            around = jax_traces.trace_of(x).parent_trace
            while around is not None and around is not self:
                around = getattr(around, "parent_trace", None)
            if around is None:
                break
            x = x.primal
        return x

    def watch(self, x: object, tangent: _Tangent) -> None:
        """Gives a value, as this trace meets it, a tangent."""
        # Some operations take the array of an ended tape's value in its place.
        for same in (x, lower(x)):
            self.watched[id(same)] = same, tangent

    def find_tangent(self, x: object) -> Any:
        """Returns the tangent of a value, recording or not; None if it has none."""
        x = self.strip(x)
        if isinstance(x, _LinearizeTracer) and jax_traces.trace_of(x) is self:
            return None if type(x.tangent) is _Zero else x.tangent
        found = self.watched.get(id(x))
        return None if found is None else found[1]

    def to_primal_tangent_pair(self, val: Any) -> tuple[Any, Any]:
        """Returns a value without and with its derivative, as JAX's rules need it."""
        is_tracer = isinstance(val, _LinearizeTracer)
        if is_tracer and jax_traces.trace_of(val) is not self:
            val = self.strip(val)  # Of a tape inside this one that has ended.
            is_tracer = isinstance(val, _LinearizeTracer)
        if is_tracer and jax_traces.trace_of(val) is self:
            if self.is_recording:
                return val.primal, val.tangent
            return val.primal, _zero_tangent(val.primal)
        if self.is_recording:
            found = self.watched.get(id(val))
            if found is not None:
                return found
            _note(self.used, val)
        return val, _zero_tangent(val)

    def was_used(self, x: object) -> bool:
        """Whether an operation took `x` before it was followed."""
        found = self.used.get(id(x))
        return found is not None and found() is x

    def keep(self, out: Any) -> object:
        """Returns the results of an operation with our own class of tracers."""
        if isinstance(out, (list, tuple)):
            return [self.keep(x) for x in out]
        if type(out) is _LinearizeTracer and jax_traces.trace_of(out) is self:
            return TapeTracer(self, out.primal, out.tangent)
        return out

    def check_constants(self, params: dict[str, Any]) -> None:
        """Raises if a watched array is a constant in the body of an operation."""
        for program in _programs(params):
            for constant in _constants(program):
                if id(constant) in self.watched:
                    raise ValueError(
                        "An array that a GradientTape watches is used inside a "
                        "function given to jax.jit, jax.checkpoint or the like, but is "
                        "not an argument of it. There it is a constant, which has no "
                        "gradient. Pass the array to that function as an argument. It "
                        f"is an array of shape {tuple(jnp.shape(constant))} and type "
                        f"{constant.dtype}."
                    )


def _note(used: dict[int, weakref.ref[object]], x: object) -> None:
    """Notes that an operation took `x`, without keeping it alive."""
    try:
        used[id(x)] = weakref.ref(x)
    except TypeError:
        return  # A Python or NumPy number, which cannot be watched anyway.


def _zero_tangent(x: object) -> object:
    return _Zero(jax.typeof(x).to_tangent_aval())


def _programs(params: dict[str, Any]) -> list[Jaxpr]:
    """Returns the programs among the parameters of an operation."""
    found = []
    for value in params.values():
        several = value if isinstance(value, (list, tuple)) else (value,)
        found += [v for v in several if hasattr(v, "eqns")]
    return found


def _constants(program: Jaxpr) -> list[Any]:
    """Returns the constants of a program, and of the programs in it."""
    found = list(getattr(program, "consts", ()))
    for eqn in program.eqns:
        found += [v.val for v in eqn.invars if isinstance(v, _Literal)]
        for inner in _programs(eqn.params):
            found += _constants(inner)
    return found


def _wrap_processing(name: str) -> Callable[..., object]:
    """Returns a method of the trace that gives results our own class of tracers."""
    original = getattr(_LinearizeTrace, name)

    def process(self: _TapeTrace, *args: object, **kwargs: object) -> object:
        # JAX gives the parameters of an operation as the last argument.
        if self.watched and args and isinstance(args[-1], dict):
            self.check_constants(args[-1])
        return self.keep(original(self, *args, **kwargs))

    process.__name__ = name
    return process


# Also those that JAX adds to the class from other modules, such as `process_shard_map`.
for _name in dir(_LinearizeTrace):
    if _name.startswith("process_") or _name == "stage_value":
        setattr(_TapeTrace, _name, _wrap_processing(_name))


# Recordings.


@final
class Recording:
    """Follows values through the operations of a block, and differentiates them.

    Args:
        outer: the recording around this one, or None.
        follows_keys: whether to follow the value of a key when it is first read.

    Attributes:
        outer: the recording around this one, or None.
        owners: the objects that the keys belong to that are followed.
        late: keys, and ids of arrays, that were used before they were followed.
        unfollowed: keys whose values were used and not followed.
        lookups: for each key of which rows were read, a key for each time and the
            positions of its rows.
    """

    def __init__(self, outer: Recording | None, follows_keys: bool) -> None:
        self.outer = outer
        self._follows_keys = follows_keys
        # As in JAX's `ad.linearize`, which has a function where this has a block.
        self._info = _debug_info("gradient tape", lambda: None, (), {})
        self._tangents = _TangentTrace(self._info, auto_dce=True)
        self._tangents.tag = _TraceTag()
        self._trace = _TapeTrace(jax_traces.current(), self._tangents)
        self._block: Any = None
        # The tangents of keys that are followed, such as the cells of variables.
        self._keys: dict[object, _Tangent] = {}
        self.owners: dict[object, Any] = {}
        self.late: set[object] = set()
        self.unfollowed: set[object] = set()
        self.lookups: dict[object, list[tuple[object, Any]]] = {}

    @property
    def is_recording(self) -> bool:
        """Whether operations are recorded."""
        return bool(self._trace.is_recording)

    def open(self) -> None:
        """Makes the recording current.

        Raises:
            RuntimeError: the recording began in other surroundings.
        """
        if jax_traces.current() is not self._trace.parent_trace:
            raise RuntimeError(
                "A GradientTape can be entered again only where it was entered first, "
                "not inside another tape, function or transformation of JAX."
            )
        self._block = _set_current_trace(self._trace)
        self._block.__enter__()
        self._trace.is_open = self._trace.is_recording = True

    def close(self) -> None:
        """Ends the block; values that are followed go on as arrays."""
        self._trace.is_open = self._trace.is_recording = False
        self._block.__exit__(None, None, None)
        self._block = None

    def pause(self) -> None:
        """Lets operations pass without recording them."""
        self._trace.is_recording = False

    def resume(self) -> None:
        """Records again after `pause`."""
        self._trace.is_recording = True

    def release(self) -> None:
        """Frees the arrays that gradients would need; none can be asked for again."""
        # Values that live on hold the tangent program, but not these arrays.
        self._tangents.frame.constvar_to_val.clear()
        self._trace.watched.clear()
        self._trace.used.clear()
        self._keys.clear()

    # Following.

    def watch(self, x: object) -> None:
        """Follows an array from here on, wherever this object is used."""
        met = self._trace.strip(x)
        # It has a tangent already, as a value of the block or from an earlier `watch`.
        if self._trace.find_tangent(met) is not None:
            return
        if self._trace.was_used(met):
            self.late.add(id(x))
        self._trace.watch(met, self._new_tangent(met))

    def add_key(self, key: object, like: jax.Array | np.ndarray, owner: object) -> None:
        """Follows the values of a key from here on; `like` is one of them."""
        if key not in self._keys:
            if key in self.unfollowed:
                self.late.add(key)
            self._keys[key] = self._new_tangent(like)
            self.owners[key] = owner

    def follow(
        self, key: object, x: jax.Array, owner: object, is_trainable: bool
    ) -> jax.Array:
        """Returns a value of a key so that it is followed.

        Args:
            key: the key, such as the cell of a variable.
            x: the value.
            owner: the object that the key belongs to.
            is_trainable: whether a key is followed that was not added before.
        """
        # A clean trace inside the block: code that computes at once has left the tape.
        if not self._trace.is_recording or jax_traces.is_clean():
            return x
        if key not in self._keys:
            if not (self._follows_keys and is_trainable and is_float(x)):
                self.unfollowed.add(key)
                return x
            self.add_key(key, x, owner)
        return TapeTracer(self._trace, x, self._keys[key])

    def follow_rows(
        self, x: jax.Array, places: Sequence[tuple[object, Any, Any]]
    ) -> jax.Array:
        """Returns rows of a key's value so that they are followed by themselves.

        Args:
            x: the rows.
            places: for each key that has them, the key, their positions there, and its
                owner (see `follow`). A row may be outside a key.
        """
        if not self._trace.is_recording or jax_traces.is_clean():
            return x
        added = any(key in self._keys for key, *_ in places)
        owner = places[0][2]
        if not added and not (self._follows_keys and owner.trainable and is_float(x)):
            self.unfollowed.update(key for key, *_ in places)
            return x
        # Each lookup has a tangent of its own, that of its rows. `pullbacks` puts
        # their gradients at the positions.
        number = len(self.lookups.setdefault(places[0][0], []))
        lookup = (places[0][0], number)
        self._keys[lookup] = self._new_tangent(x)
        for key, where, its_owner in places:
            self.lookups.setdefault(key, []).append((lookup, lower(where)))
            self.owners.setdefault(key, its_owner)
        return TapeTracer(self._trace, x, self._keys[lookup])

    def _new_tangent(self, x: object) -> _Tangent:
        aval = jax.typeof(x).to_tangent_aval()
        return self._tangents.new_arg(aval, _source_info())  # type: ignore[no-any-return]

    # Differentiating.

    def find_tangent(self, x: object) -> Any:
        """Returns the tangent of a value or key; None if it has none."""
        with contextlib.suppress(TypeError):  # Tracers cannot be keys.
            if x in self._keys:
                return self._keys[x]
        return self._trace.find_tangent(x)

    def make_pullback(
        self, targets: Sequence[_Tangent], sources: Sequence[_Tangent]
    ) -> Callable[[Sequence[Any]], list[Any]]:
        """Returns the function from gradients of targets to those of sources.

        Args:
            targets: tangents of the targets.
            sources: tangents of the sources.

        Returns:
            A function of a list that returns one. A gradient is None if no target
            depends on the source.
        """
        where = _source_info()
        outs = [self._tangents.to_jaxpr_tracer(t, where) for t in targets]
        program, residuals = self._tangents.to_jaxpr(
            outs, self._info.with_unknown_names(), where
        )
        wanted = [t.val for t in sources]
        # Without what the outputs do not need, also in the bodies of loops: JAX cannot
        # transpose a loop that has outputs that nobody uses.
        program, _ = _dce_jaxpr(program, [True] * len(outs), instantiate=True)
        own = set(self._tangents.frame.invars)
        inputs = [v for v in program.invars if v in own]
        # From JAX 0.11 on, residuals are the first inputs of a program; before, they
        # were its constants.
        leading = program.invars[: len(program.invars) - len(inputs)]
        eqns, added = _add_inputs(program.eqns, wanted, set(inputs))
        every = [*leading, *inputs, *added.values()]
        program = program.replace(eqns=eqns, invars=every)

        def pull(cotangents: Sequence[Any]) -> list[Any]:
            # JAX's backward pass adds the gradient of each input to its accumulator.
            sums = {v: _ValAccum(v.aval) for v in every[len(leading) :]}
            given = [*residuals, *sums.values()] if leading else [*sums.values()]
            consts = () if leading else residuals
            _backward_pass(program, True, consts, given, list(cotangents))
            found = [sums[added.get(v, v)].freeze() for v in wanted]
            return [None if type(g) is _Zero else g for g in found]

        return pull


def _add_inputs(
    eqns: list[JaxprEqn], wanted: Sequence[object], inputs: set[Var]
) -> tuple[list[JaxprEqn], dict[Var, Var]]:
    """Returns equations in which a new input is added to each wanted variable.

    Variables that are inputs already need none.

    Returns:
        The equations, and the new input for each such variable.
    """
    added = {v: _Var(v.aval) for v in wanted if isinstance(v, _Var) and v not in inputs}
    if not added:
        return eqns, added
    made: list[Any] = []
    for eqn in eqns:
        # What the equation computes gets another name, and the sum takes the old one,
        # so that all later equations use the sum.
        renamed = {v: _Var(v.aval) for v in eqn.outvars if v in added}
        outvars = [renamed.get(v, v) for v in eqn.outvars]
        made.append(eqn.replace(outvars=outvars) if renamed else eqn)
        for v, computed in renamed.items():
            made.append(_new_eqn([computed, added[v]], [v], _add_p, {}, _no_effects))
    return made, added
