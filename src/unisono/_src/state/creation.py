"""Checks and first values of new variables, and the functions that change creation."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import ambient, jax_types, tensor_shape, wide_numbers
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.machines import partition
from unisono._src.state import conversion, frames, storage
from unisono._src.state.storage import Policy
from unisono._src.values import collectives, ports
from unisono._src.values.array_operators import operand
from unisono._src.workers import eager_exchange

if TYPE_CHECKING:
    from unisono._src.state.variables import Variable

# Packages whose frames are skipped in search of the user's line that made a variable.
_PACKAGES = {__name__.partition(".")[0], "keras", "flax", "jax", "optax"}

# Arguments that mean something in TensorFlow's graphs only. Creators get them, too.
_OF_GRAPHS = {
    "validate_shape",
    "caching_device",
    "variable_def",
    "import_scope",
    "experimental_enable_variable_lifting",
}

# What TensorFlow adds to a name that is taken: `_1` at its end or before a `/`.
_UNIQUE_SUFFIX = re.compile(r"_\d(?=/|$)")


def policy(
    placement: storage.Placement | None, synchronization: VariableSynchronization
) -> Policy:
    """Returns how a placement keeps a variable with this synchronization."""
    if placement is None or placement.kind is Policy.PLAIN:
        return Policy.PLAIN
    if placement.kind is Policy.SERVER:
        return Policy.SERVER
    if placement.kind is Policy.CENTRAL:
        return Policy.CENTRAL if placement.topology.replicas > 1 else Policy.PLAIN
    if synchronization is VariableSynchronization.ON_READ:
        return Policy.ON_READ
    return Policy.MIRRORED


def initial_array(
    initial_value: Any,
    dtype: DTypeLike | None,
    shape: tensor_shape.ShapeLike,
    name: str | None,
    placement: storage.Placement | None = None,
) -> jax.Array:
    """Returns the initial value as an array of the wanted type.

    Args:
        initial_value: array-like, or a function that returns one.
        dtype: the wanted type, if any.
        shape: the wanted shape, if any; None stands for any length of an axis, and
            TensorShape(None) for any shape.
        name: the name of the variable, for messages.
        placement: where a mirrored variable goes. If large ones are cut over the
            devices, no device computes or holds the whole value.

    Raises:
        TypeError: the wanted type cannot hold a Python number of the initial value.
        ValueError: there is no initial value, its shape is not the wanted one, or the
            wanted type cannot hold it.
    """
    if initial_value is None:
        raise ValueError(
            "The `initial_value` arg to `tf.Variable` must be specified, and that of "
            f"variable {name} is None; give an array, a number or a function without "
            "arguments that returns one."
        )
    if (
        placement is not None
        and placement.plan is not None
        and not frames.frame().is_compiled
    ):
        value = compute_in_parts(initial_value, dtype, placement, name)
    else:
        # Once, whatever the number of copies, as in TensorFlow.
        given = initial_value() if callable(initial_value) else initial_value
        value = _as_value(given, dtype, name)
    if shape is not None:
        wanted = tensor_shape.TensorShape(shape)
        if not wanted.is_compatible_with(value.shape):
            raise ValueError(
                f"The initial value's shape {value.shape} is not compatible with the "
                f"explicitly supplied `shape` argument {tuple(wanted)} of variable "
                f"{name}."
            )
    return value


def _as_value(value: object, dtype: DTypeLike | None, name: str | None) -> jax.Array:
    """Returns `value` as an array of the wanted type, with memory of its own."""
    dtype = jax_types.usable_type(dtype)
    if not hasattr(value, "dtype"):
        conversion.check_given(value, name or "Variable")
    if dtype is None:
        value = operand(value)
        if not isinstance(value, jax.Array):
            what = f"the value of the variable '{name or 'Variable'}'"
            own = conversion.copy_if_numpy(conversion.give_type(value))
            value = wide_numbers.as_jax(own, None, what)
    else:
        is_key = jnp.issubdtype(dtype, jax.dtypes.extended)
        wanted: Any = dtype if is_key else np.dtype(dtype)
        value = conversion.as_type(value, wanted, name or "Variable")
    # A weak type would make the variable's dtype follow what is assigned to it.
    return jax.lax.convert_element_type(value, value.dtype)


def compute_in_parts(
    given: Any,
    dtype: DTypeLike | None,
    placement: storage.Placement,
    name: str | None = None,
) -> jax.Array:
    """Returns a first value; a large one is cut over the devices of the placement.

    A function is traced, and each device computes its part of the result. A function
    that cannot be traced is called, and computes on the host; with other workers the
    value stays there, because they may have another one.

    Args:
        given: an array, or a function that returns one.
        dtype: the wanted type, if any.
        placement: the devices, and from which size on a value is large.
        name: the name of the variable, for messages.
    """
    # Three ways: a function that JAX can trace is compiled, so that each device makes
    # its part; what is known already is cut from the host; all else is made whole.
    concrete: list[Any] = []

    def traced() -> object:
        found = operand(given())
        if isinstance(found, jax.core.Tracer):
            return _as_value(found, dtype, name)
        concrete.append(found)
        return ()

    if callable(given):
        try:
            closed = jax.make_jaxpr(traced)()
        except Exception:
            # The function reads files, for instance; if it is wrong, it raises again.
            with _host_context():
                concrete = [collectives.release(_as_value(given(), dtype, name))]
        if not concrete:
            return _compute_program(closed, placement, name)
        given = concrete[0]
    if not isinstance(given, np.ndarray):
        return _as_value(given, dtype, name)
    target = _target_sharding(given.shape, placement, name)
    if target is None:
        return _as_value(given, dtype, name)
    wanted = jax.dtypes.canonicalize_dtype(given.dtype if dtype is None else dtype)
    conversion.check_array(given.dtype, wanted, name)
    wide_numbers.check(given, f"the value of the variable '{name}'", wanted)
    if placement.topology.is_spread:
        # Whole, and on the host: the cell takes worker 0's, if they differ.
        own: Any = given.astype(wanted)
        return own  # type: ignore[no-any-return]
    return partition.put(given.astype(wanted), target)


def _host_context() -> Any:
    """Returns a context manager that computes on the host, if JAX can use it."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return contextlib.nullcontext()


def _target_sharding(
    shape: tuple[int, ...], placement: storage.Placement, name: str | None
) -> jax.sharding.NamedSharding | None:
    """Returns where a large value goes, or None if the value is not large."""
    assert placement.plan is not None
    # The name that the variable will have.
    full = f"{ambient.current().names}{name or 'Variable'}"
    split = placement.plan.choose(placement.topology, shape, full).split
    return None if split is None else partition.sharding(placement.topology, split)


def _compute_program(
    closed: Any, placement: storage.Placement, name: str | None
) -> jax.Array:
    """Returns the result of a traced function, cut over the devices if it is large."""
    consts, jaxpr = closed.consts, closed.jaxpr

    def compute_with(*consts: jax.Array) -> jax.Array:
        (found,) = jax.core.eval_jaxpr(jaxpr, consts)
        return found  # type: ignore[no-any-return]

    (aval,) = closed.out_avals
    target = _target_sharding(aval.shape, placement, name)
    if target is None or jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return compute_with(*consts)
    if not placement.topology.is_spread and all(map(_is_small, consts)):
        given = jax.device_put(list(consts), placement.topology.replicated_sharding)
        return _find_program(compute_with, given, target)(*given)
    program = jax.jit(lambda: compute_with(*consts), out_shardings=target)
    if placement.topology.is_spread and not _is_same_program(placement, program, name):
        # Other random numbers, for instance. The cell takes worker 0's.
        with _host_context():
            return collectives.release(compute_with(*consts))
    parts: jax.Array = program()
    return parts


def _is_small(const: jax.Array) -> bool:
    """Whether a constant may be an input of a program: a seed, for instance."""
    return not isinstance(const, jax.core.Tracer) and const.size <= 64


def _find_program(
    compute: Callable[..., jax.Array],
    given: Sequence[jax.Array],
    target: jax.sharding.Sharding,
) -> Callable[..., jax.Array]:
    """Returns a compiled function; the same one for all layers that differ in a seed.

    Args:
        compute: the function.
        given: its arguments, on all devices.
        target: how its result lies on the devices.
    """
    program = jax.jit(compute, out_shardings=target, keep_unused=True)
    text = _find_text(program.lower(*given), len(given))
    if text is None:
        return program
    known = _known_programs(text, target)
    known.append(program)
    del known[1:]
    return known[0]


@functools.lru_cache(maxsize=64)
def _known_programs(
    text: str, target: jax.sharding.Sharding
) -> list[Callable[..., jax.Array]]:
    """Returns the programs of this text that were made before, one at most."""
    return []


def _find_text(lowered: jax.stages.Lowered, inputs: int) -> str | None:
    """Returns the text of a program; None if not all of its constants are in it.

    With `jax_use_simplified_jaxpr_constants` JAX makes arrays that a function uses
    inputs of the program.
    """
    text = lowered.as_text()
    head = text[text.index("@main(") : text.index(" -> ")]
    return text if head.count("%arg") == inputs else None


def _is_same_program(
    placement: storage.Placement, program: Any, name: str | None
) -> bool:
    """Whether all workers compute a first value by the same program.

    The text of a lowered program has its constants, but no places in source files.
    """
    # Without the constants nothing is known: a text of its own for each worker.
    text = (_find_text(program.lower(), 0) or secrets.token_hex()).encode()
    point = f"computation of the first value of variable '{name}'"
    topology = placement.topology
    return eager_exchange.is_same(topology, point, np.frombuffer(text, np.uint8))


def check_distributed(
    synchronization: VariableSynchronization, name: str | None
) -> None:
    """Raises `ValueError` for a synchronization that strategies do not have."""
    if synchronization is VariableSynchronization.NONE:
        raise ValueError(
            "`NONE` variable synchronization mode is not supported with "
            "tf.distribute strategy. Please change the `synchronization` for "
            f"variable: {name}"
        )


def check_arguments_of_graphs(given: Mapping[str, Any]) -> None:
    """Raises `TypeError` for an argument that is not one of those without effect."""
    if unknown := given.keys() - _OF_GRAPHS:
        raise TypeError(f"Variable() got an unexpected argument {min(unknown)!r}.")


def check_mean(aggregation: VariableAggregation, dtype: DTypeLike) -> None:
    """Raises `ValueError` for the mean of values that are not floating."""
    if aggregation is VariableAggregation.MEAN and not jnp.issubdtype(
        dtype, jnp.inexact
    ):
        raise ValueError(
            "creating distributed tf.Variable with aggregation=MEAN and a "
            "non-floating dtype is not supported, please use a different aggregation "
            f"or dtype; received {dtype}."
        )


def find_origin() -> str:
    """Returns file and line of the user's code that is making a variable."""
    # Not `inspect.stack`, which reads source files.
    frame = inspect.currentframe()
    assert frame is not None
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _PACKAGES:
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def wrap_in_creators(
    create: Callable[..., Any], count: int | None = None
) -> Callable[..., Any]:
    """Returns `create` behind the creators of `variable_creator_scope`, if any.

    Args:
        create: makes the variable from keyword arguments, which creators may change.
        count: how many of the creators to use, from the outermost on; None for all.
    """
    frame = ambient.current()
    creators = frame.creators[:count]
    if frame.placement is None:
        return _chain(creators, create)
    outer = creators[: frame.outer_creators]
    inner = creators[frame.outer_creators :]
    if outer:
        create = _show_components(outer, create, frame.placement.topology.copies)
    return _chain(inner, create)


def _show_components(
    creators: tuple[Any, ...], create: Callable[..., Any], count: int
) -> Callable[..., Any]:
    """Returns `create` behind creators that are called once for each component.

    Args:
        creators: those given outside the strategy's scope.
        create: makes the distributed variable; called once.
        count: how many components this process has.
    """

    def build(**kwargs: object) -> Variable:
        made: list[Variable] = []

        def component(index: int) -> Callable[..., Any]:
            def give(**kwargs: object) -> Variable:
                if not made:
                    made.append(create(**kwargs))
                parts = getattr(made[0], "values", None)
                return made[0] if parts is None else parts[index]

            return give

        # TensorFlow calls such creators once for each component. The variable itself is
        # made by the first call only.
        for i in range(count):
            _chain(creators, component(i))(**kwargs)
        return made[0]

    return build


def _chain(creators: tuple[Any, ...], last: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `last` behind the creators; the last creator is called first."""
    for creator in creators:
        last = _bind_creator(creator, last)
    return last


def _bind_creator(
    creator: Callable[..., Any], following: Callable[..., Any]
) -> Callable[..., Any]:
    return lambda **kwargs: creator(following, **kwargs)


def take_in_turn(
    port: ports.LockstepPort, create: Callable[..., Any], arguments: Mapping[str, Any]
) -> Variable:
    """Returns the next variable of a replica that runs in turn with the others.

    The first replica makes it. The k-th variable of any other replica is the k-th of
    the first one. Creators that the replica function itself has entered are called by
    each replica, those from outside `run` by the first one.

    Args:
        port: the port of the replica.
        create: makes the variable from keyword arguments.
        arguments: the arguments that the replica gave.

    Raises:
        RuntimeError: the first replica has not made as many variables, or has given
            this one another name.
    """

    def take(**kwargs: Any) -> Variable:
        name = kwargs.get("name")
        # Replicas start in order, so the first has made its variables before the
        # others.
        if port.index == port.turns[0]:
            made = wrap_in_creators(create, port.creators)(**kwargs)
            port.made.append((name, made))
        first, made = (None, None)
        if port.taken < len(port.made):
            first, made = port.made[port.taken]
        if made is None or not _is_same_name(first, name):
            instead = "did not create it" if made is None else f"created {first}"
            raise RuntimeError(
                f"Tried to create variable {name} with mismatching name on replica "
                f"{port.index}: replica {port.turns[0]} {instead}. Every replica must "
                "create the same variables in the same order."
            )
        port.taken += 1
        return made  # type: ignore[no-any-return]

    inner = ambient.current().creators[port.creators :]
    found: Variable = _chain(inner, take)(**arguments)
    return found


def _is_same_name(one: str | None, other: str | None) -> bool:
    """Tells whether names are equal but for the digits that make names unique.

    As in TensorFlow, `dense_1/kernel` and `dense_2/kernel` name the same variable.
    """
    if one is None or other is None:
        return one is other
    return _UNIQUE_SUFFIX.sub("", one) == _UNIQUE_SUFFIX.sub("", other)


@contextlib.contextmanager
def variable_creator_scope(creator: Callable[..., Any]) -> Iterator[None]:
    """Lets `creator` create or change every variable that is created in the block.

    The innermost creator is called first. A creator outside the scope of a strategy
    gets the component variables; a creator inside it gets the distributed variable.

    Args:
        creator: a function ``creator(next_creator, **kwargs)`` that returns a variable.
            ``kwargs`` are the arguments of `Variable`; ``next_creator(**kwargs)``
            creates the variable.

    Returns:
        A context manager.

    Raises:
        RuntimeError: at the end, if a scope that the block entered is still open.

    >>> import unisono
    >>> def freeze(next_creator, **kwargs):
    ...     return next_creator(**{**kwargs, "trainable": False})
    >>> with unisono.variable_creator_scope(freeze):
    ...     v = unisono.Variable(1.0)
    >>> v.trainable, unisono.Variable(1.0).trainable
    (False, True)
    """
    outer = ambient.current()
    creators = (*outer.creators, creator)
    frame = outer._replace(creators=creators)
    ambient.swap(frame)
    try:
        yield
    finally:
        found = ambient.current()
        if found is frame:
            ambient.swap(outer)
        elif found.creators[: len(creators)] == creators:
            ambient.swap(outer)
            raise RuntimeError(
                "Exiting variable_creator_scope without proper nesting: a scope that "
                "was entered inside it is still open. Leave that one first."
            )
        # Else a scope around it was left first, with an error; this one ended then.
