"""`compile`, `fit`, `evaluate` and `predict` of models that were made in a scope.

Keras' own loop runs, with weights that all devices of the strategy have and batches
that are split over the devices. A model remembers its strategy, so its methods may be
called outside the scope. After an error the weights can still be read. See
docs/decisions/0014.

A loop is replaced in two places. The method of a model that was made in a scope
(`attach`) enters the scope, wherever it is called. The method of Keras' class, while a
scope is open (`wrap_loop`), takes datasets of unisono, and refuses models from outside.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import jax
import keras

from unisono._src.execution import late_gathers, program_cache
from unisono._src.foundation import ambient
from unisono._src.integrations.keras import (
    adoption,
    failed_loops,
    inputs,
    internals,
    positions,
    stops,
    strategy_distribution,
    variables,
)
from unisono._src.integrations.keras.internals import (
    EpochIterator,
    KerasModel,
    KerasVariable,
)
from unisono._src.machines import topology
from unisono._src.machines.topology import Topology
from unisono._src.state import copy_checks
from unisono._src.state.storage import Cell
from unisono._src.strategies import call_context, current
from unisono._src.strategies.base import Strategy
from unisono._src.values import array_operators, collectives, jax_tapes
from unisono._src.workers import watchdog

# Under this name a model has, while a loop runs, the state that its latest step
# returned.
_LATEST = "_unisono_latest"
_STRATEGY = adoption.STRATEGY
LOOPS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)
# The parts of the state of a training step, in the order in which Keras passes them.
_KINDS = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)
# The arguments of `fit` from which Keras makes a data adapter.
_INPUT = ("x", "y", "sample_weight", "batch_size", "steps_per_epoch", "class_weight")
# The values of the variables of a step, in one list for each of these parts.
_State = Sequence[Sequence[jax.Array]]
_Step = Callable[[_State, object], tuple[object, _State]]
_throttle = topology.THROTTLE


# A model made in a scope.


def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of models that attaches them to the current strategy."""

    @functools.wraps(original)
    def init(self: KerasModel, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        strategy = _find_strategy()
        if strategy is not None and _STRATEGY not in self.__dict__:
            attach(self, strategy)
            adoption.note_new_model(self)

    return init


def _find_strategy() -> Strategy | None:
    """Return the strategy whose scope is open in this thread, or None."""
    strategy = ambient.current().strategy
    if strategy is None and strategy_distribution.current() is not None:
        return current.default_strategy()  # Its scope leaves no other trace.
    return strategy


def attach(model: KerasModel, strategy: Strategy) -> None:
    """Attach a model to a strategy: its methods then enter the scope by themselves."""
    # The methods are replaced on the object, as Keras does with `build`. So models
    # made outside scopes are untouched.
    own = model.__dict__
    adoption.enroll(model, strategy)
    for name in LOOPS:
        own[name] = types.MethodType(_make_loop_method(name), model)
    for name in ("compile", "load_weights"):
        own[name] = types.MethodType(_make_scoped_method(name), model)


@functools.cache
def _make_loop_method(name: str) -> Callable[..., object]:
    """Return a method that runs a loop of Keras in the strategy of its model."""

    @functools.wraps(getattr(keras.Model, name))
    def method(self: KerasModel, *args: Any, **kwargs: Any) -> object:
        strategy = self.__dict__[_STRATEGY]
        placement = call_context.find_placement(strategy)
        servers = None if placement is None else placement.servers
        if name == "fit" and servers is not None:
            with strategy.scope():
                adoption.bring_in(self)
                fit = servers.load_fit()
                return fit(self, strategy, _enter_loop, *args, **kwargs)
        if name.endswith("_on_batch"):
            strategy_distribution.check_numbers((args, kwargs))
        # They return numbers, which have no gradient.
        with jax_tapes.leave_tapes(), _own_programs(self), _enter_loop(self):
            return getattr(type(self), name)(self, *args, **kwargs)

    return method


@contextlib.contextmanager
def _own_programs(model: KerasModel) -> Iterator[None]:
    """Have a model compile its steps anew where programs are kept apart."""
    if program_cache.World.current is None:
        yield
        return
    names = ("train_function", "test_function", "predict_function")
    kept = ("history", "stop_training")
    outer = {name: getattr(model, name, None) for name in (*names, *kept)}
    for name in names:
        setattr(model, name, None)
    try:
        yield
    finally:
        for name, made in outer.items():
            setattr(model, name, made)


@functools.cache
def _make_scoped_method(name: str) -> Callable[..., object]:
    """Return a method that runs in the scope of its model's strategy."""

    @functools.wraps(getattr(keras.Model, name))
    def method(self: KerasModel, *args: object, **kwargs: object) -> object:
        with self.__dict__[_STRATEGY].scope():
            result = getattr(type(self), name)(self, *args, **kwargs)
            adoption.bring_in(self)
            return result

    return method


def wrap_loop(original: Callable[..., object]) -> Callable[..., object]:
    """Return a loop of Keras that also takes datasets of unisono.

    In a scope the loop raises `ValueError` for a model that was made outside of it.
    """

    @functools.wraps(original)
    def method(self: KerasModel, *args: object, **kwargs: object) -> object:
        strategy = ambient.current().strategy
        if strategy is not None and self.__dict__.get(_STRATEGY) is not strategy:
            raise ValueError(
                f"The model {self.name!r} was not created in the distribution strategy "
                f"scope of {strategy!r}, in which its `{original.__name__}` is called. "
                "Create and compile the model inside `with strategy.scope():`, bring "
                "it in with strategy.adopt(model), or call the method outside the "
                "scope."
            )
        if strategy is not None:
            adoption.check_members(self)
        found = inputs.bind_arguments(original, args, kwargs)
        if found is None:
            return original(self, *args, **kwargs)
        agreement = None
        if strategy is not None:
            agreement = _prepare(strategy, original, found.arguments)
        with contextlib.nullcontext() if agreement is None else agreement.hold(self):
            return original(self, *found.args[1:], **found.kwargs)

    return method


def _prepare(
    strategy: Strategy, method: Callable[..., object], given: dict[str, Any]
) -> stops.Agreement | None:
    """Change the arguments of a loop of Keras for several workers, and for backups.

    Only the chief prints its progress. With several workers, or with a callback that
    makes backups, `fit` reads from a `PositionedAdapter`.

    Args:
        strategy: the strategy of the model.
        method: the loop, such as `fit`.
        given: the arguments of the loop by name; they are changed in place.

    Returns:
        How the workers agree to stop, or None if this is not `fit` on several workers.
    """
    topology = call_context.find_placement(strategy).topology
    if (
        topology.is_spread
        and topology.worker != 0
        and "on_batch" not in method.__name__
    ):
        given["verbose"] = 0
    if method.__name__ != "fit":
        return None
    takers = [c for c in _as_list(given.get("callbacks")) if hasattr(c, "_take_input")]
    agreement = stops.Agreement(topology) if topology.is_spread else None
    if agreement is not None or takers:
        adapter = _position_input(given, agreement)
        positions.give_input(takers, adapter)
    return agreement


def _as_list(callbacks: object) -> list[Any]:
    """Return the callbacks of a list, of a `CallbackList`, or the only one."""
    found = getattr(callbacks, "callbacks", callbacks) or []
    return list(found) if isinstance(found, list | tuple) else [found]


def _position_input(
    given: dict[str, Any], agreement: stops.Agreement | None
) -> positions.PositionedAdapter:
    """Replace the input of `fit` by an adapter that knows its position.

    Args:
        given: the arguments of `fit`; they are changed in place.
        agreement: with other workers, which read the same batches, how they stop.
    """
    # Keras splits arrays only, so the validation data are taken off first.
    part = given.pop("validation_split", 0.0)
    if part and given.get("validation_data") is None:
        arrays = tuple(given.get(name) for name in ("x", "y", "sample_weight"))
        split = internals.train_validation_split(arrays, validation_split=part)
        (given["x"], given["y"], given["sample_weight"]), given["validation_data"] = (
            split
        )
    wanted = {name: given.get(name) for name in _INPUT}
    inner = internals.data_adapters.get_data_adapter(
        shuffle=given.get("shuffle", True), **wanted
    )
    made = positions.PositionedAdapter(inner, agreement)
    for name in ("y", "sample_weight", "class_weight"):
        given.pop(name, None)
    given["x"] = made
    return made


@contextlib.contextmanager
def _enter_loop(model: KerasModel) -> Iterator[None]:
    """Run a block in which Keras' programs take the variables of `model` whole."""
    strategy = model.__dict__[_STRATEGY]
    # A loop in a loop, such as `evaluate` in a callback: the state is the outer one's.
    if strategy_distribution.is_training() and ambient.current().strategy is strategy:
        yield
        return
    with strategy.scope():
        adoption.bring_in(model)
        placement = call_context.find_placement(strategy)
        if placement is None:
            yield  # The default strategy has one copy of all, as Keras itself.
            return
        distribution = strategy_distribution.StrategyDistribution(
            placement, variables.adopt, is_training=True
        )
        with distribution.scope():
            try:
                yield
            except BaseException:  # `KeyboardInterrupt` too.
                # A step that has failed had taken the arrays of the variables.
                _rescue(model)
                raise
            finally:
                model.__dict__.pop(_LATEST, None)


# The state of the latest step, which survives whatever is raised.


def wrap_make_function(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `_make_function` whose steps record the state that they return."""

    @functools.wraps(original)
    def make(
        self: KerasModel, step_function: _Step, *args: object, **kwargs: object
    ) -> object:
        strategy = self.__dict__.get(_STRATEGY)
        placement = None if strategy is None else call_context.find_placement(strategy)
        if placement is None:
            return original(self, step_function, *args, **kwargs)
        if placement.plan is not None:
            # Keras has built the model.
            placement.plan.check_rules()
        devices = placement.topology
        checks = copy_checks.find_checks()
        if checks is not None:
            step_function = _check_copies(self, step_function, checks)
        if devices.is_spread:
            step_function = _watch_step(step_function, devices)
        step = _record_state(self, step_function, devices.needs_throttle)
        return original(self, step, *args, **kwargs)

    return make


def wrap_jit(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `jit` for steps of Keras that gather split weights where they read them.

    See docs/decisions/0038.
    """

    @functools.wraps(original)
    def jit(fn: Callable[..., object], **options: object) -> object:
        # What donates its first argument is a step: it takes the state and a batch.
        is_step = "donate_argnums" in options
        if not is_step or not strategy_distribution.gathers_late():
            return original(fn, **options)
        return original(_gather_late(fn), **options)

    return jit


def _gather_late(step: Callable[..., object]) -> Callable[..., object]:
    """Return a step that gathers split weights where it reads them."""

    @functools.wraps(step)
    def run(state: _State, data: object) -> object:
        closed, shape = jax.make_jaxpr(step, return_shape=True)(state, data)
        given = jax.tree.leaves((state, data))
        found = strategy_distribution.current()
        assert found is not None and found.placement is not None
        platform = found.placement.topology.devices[0].platform
        flat = late_gathers.delay_partitioned(closed, given, platform)
        return jax.tree.unflatten(jax.tree.structure(shape), flat)

    return run


def wrap_state_sync(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `jax_state_sync` that moves the state of a step into the variables.

    No one else refers to these arrays, so the variables need no copies.
    """

    @functools.wraps(original)
    def sync(self: KerasModel) -> None:
        found = strategy_distribution.current()
        if found is None or not found.is_training:
            original(self)
            return
        before, found.is_syncing = found.is_syncing, True
        try:
            _renew_state(self)
            original(self)
        finally:
            found.is_syncing = before

    return sync


def _renew_state(model: KerasModel) -> None:
    """Let Keras store the state of the latest step, or nothing if it is gone.

    Keras itself knows the state after the latest execution, which may have several
    steps. After an error between two of them that is not the state of the latest step.
    """
    latest = model.__dict__.get(_LATEST)
    if latest is None or internals.has_weights(model):
        return
    if not internals.loop_state(model):
        return
    # The step that failed had taken over the arrays, so there is nothing to store.
    if any(x.is_deleted() for x in jax.tree.leaves(latest)):
        internals.give_weights_back(model)
        return
    state = dict(zip(_kinds(len(latest)), latest, strict=True))
    internals.set_loop_state(model, state)


def _record_state(model: KerasModel, step: _Step, is_throttled: bool) -> _Step:
    """Return a step that records the state that it returns in its model."""
    own = model.__dict__

    def run(state: _State, data: object) -> tuple[object, _State]:
        done: list[tuple[object, _State]] = []
        try:
            # Call and store are one instruction of Python. The step donates the old
            # state, so an interrupt between the two would lose both.
            done.extend(map(step, (state,), (data,)))
        finally:
            if done:
                own[_LATEST] = done[0][1]
        outputs, new = done[0]
        if is_throttled:
            # Virtual CPU devices must not queue too many programs, see
            # docs/decisions/0005.
            _throttle.count += 1
            if _throttle.count >= _throttle.group:
                _throttle.wait(jax.tree.leaves(outputs), jax.tree.leaves(new))
        return outputs, new

    return run


def forget_state(model: KerasModel) -> None:
    """Forget the state of the latest step: from now on the variables have it."""
    model.__dict__.pop(_LATEST, None)


def _check_copies(
    model: KerasModel, step: _Step, checks: copy_checks.CopyChecks
) -> _Step:
    """Return a step before which copies of variables are compared now and then."""

    def run(state: _State, data: object) -> tuple[object, _State]:
        def find() -> dict[Cell, jax.Array]:
            # The loop has taken the arrays of the variables over.
            kinds = _state_variables(model, len(state))
            return {
                array_operators.find_own_variable(variable).state_cell: array
                for kept, arrays in zip(kinds, state, strict=True)
                for variable, array in zip(kept, arrays, strict=False)
                if _is_ours(variable)
            }

        checks.note_step(find)
        return step(state, data)

    return run


def _watch_step(step: _Step, topology: Topology) -> _Step:
    """Return a step in which workers watch each other and get all of the outputs.

    Args:
        step: the step of Keras.
        topology: the devices of all workers.
    """
    name = getattr(step, "__name__", "step")
    whole = jax.jit(lambda x: x, out_shardings=topology.replicated_sharding)

    def own(x: jax.Array) -> jax.Array:
        return collectives.own_copy(x if x.is_fully_replicated else whole(x))

    def run(state: _State, data: object) -> tuple[object, _State]:
        watchdog.enter((f"Keras {name}", [x.shape for x in jax.tree.leaves(data)]))
        try:
            outputs, new = step(state, data)
            own_outputs = jax.tree.map(own, outputs)
        except Exception as error:
            watchdog.raise_explained(error)
        watchdog.watch(own_outputs)
        return own_outputs, new

    return run


def _rescue(model: KerasModel) -> None:
    """Give every variable of a model the latest value that still exists."""
    latest = model.__dict__.pop(_LATEST, None) or ()
    internals.set_loop_state(model, None)
    internals.give_weights_back(model)
    for kept, values in zip(_state_variables(model, len(latest)), latest, strict=True):
        for variable, value in zip(kept, values, strict=False):
            if _is_ours(variable) and variable.is_lost() and not value.is_deleted():
                internals.store(variable, value)
    for variable in [*model.variables, *failed_loops.state_variables(model, _KINDS[2])]:
        if _is_ours(variable):
            variable.take_back()


def _is_ours(variable: object) -> TypeGuard[variables.StrategyVariable]:
    return isinstance(variable, variables.StrategyVariable)


def _state_variables(model: KerasModel, count: int) -> list[Sequence[KerasVariable]]:
    """Return the variables of a step's state, in lists as the state has them.

    Args:
        model: the model.
        count: the number of parts of the state.
    """
    return [failed_loops.state_variables(model, kind) for kind in _kinds(count)]


def _kinds(count: int) -> tuple[str, ...]:
    """Return the parts of the state of a step that has `count` of them."""
    # A prediction step has two parts, a test step three, a training step all four.
    return {0: (), 2: _KINDS[:2], 3: (*_KINDS[:2], _KINDS[3]), 4: _KINDS}[count]


def wrap_batch_iterator(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `_get_distributed_iterator` that lays out each batch by its own size.

    Keras uses the layout of the first batch of an epoch for all, which does not fit a
    last batch of another size.
    """

    @functools.wraps(original)
    def iterate(self: EpochIterator, distribution: object) -> object:
        if not isinstance(distribution, strategy_distribution.StrategyDistribution):
            return original(self, distribution)
        return distribution.batches(self.data_adapter.get_jax_iterator())

    return iterate
