"""`unisono.function`, which compiles a Python function together with its variables."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    final,
    overload,
)

import jax

from unisono._src.execution import (
    argument_order,
    call_modes,
    concrete_function,
    conversion,
    host_inputs,
    program_cache,
    programs,
    signature,
    traced_function,
    unchanged_arguments,
)
from unisono._src.execution.call_modes import Mode
from unisono._src.execution.concrete_function import ConcreteFunction
from unisono._src.foundation import ambient, public_names
from unisono._src.machines import forks
from unisono._src.machines.topology import Topology
from unisono._src.state import frames
from unisono._src.values import jax_traces

_P = ParamSpec("_P")
_Rest = ParamSpec("_Rest")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_Key = tuple[Any, ...]  # The rest of the arguments, and where the call is made.
_Args = tuple[Any, ...]
_Kwargs = dict[str, Any]
_Mesh = Topology | None

# How many replica functions a function on the host keeps compiled. A function that
# captures something new on every call would otherwise fill the memory.
_MAX_HOST_RUNS = 128
is_clean = jax_traces.is_clean


def is_compiling() -> bool:
    """Whether the running code is being traced by a `function`."""
    return frames.frame().is_compiled


def _is_inlined(frame: ambient.Frame) -> bool:
    """Whether a `function` called in this frame becomes part of the code around it."""
    is_traced = frame.state is not None or frame.port is not None
    return is_traced or frame.mode == ambient.UPDATE


class Function(Generic[_P, _R_co]):
    """A Python function that is traced once per signature and then runs compiled.

    `unisono.function` returns one. You do not need to list the variables that the
    function reads or assigns: tracing finds them, and their arrays become inputs and
    outputs of one XLA program.

    Args:
        python_function: the function to compile.
        input_signature: `TensorSpec`s that arguments must match, or None.
        name: the name in programs and profiles; by default the name of the function.
        max_programs: the number of compiled programs that the function keeps at most;
            None for all of them. See `unisono.function`.
        autograph: whether statements that depend on arrays may be converted.

    Attributes:
        python_function: the function that is compiled.
        input_signature: the `TensorSpec`s that arguments must match, or None.

    >>> import unisono
    >>> v = unisono.Variable(1.0)
    >>> step = unisono.Function(lambda x: v.assign_add(x), name="step")
    >>> float(step(2.0)), float(step(2.0)), float(v.numpy())
    (3.0, 5.0, 5.0)
    >>> step.__name__, step.experimental_get_tracing_count()
    ('step', 1)
    """

    def __init__(
        self,
        python_function: Callable[_P, _R_co],
        input_signature: Sequence[Any] | None = None,
        name: str | None = None,
        max_programs: int | None = None,
        autograph: bool = True,
    ) -> None:
        self.python_function: Callable[_P, _R_co] = (
            python_function.python_function
            if isinstance(python_function, Function)
            else python_function
        )
        self.input_signature = input_signature
        # For methods: by id of the object, a weak reference to it and its function.
        self._bound: dict[int, tuple[Any, Function[..., Any]]] = {}
        self._programs = program_cache.ProgramCache(
            program_cache.ProgramLimit(self.python_function, max_programs)
        )
        self._last = program_cache.LastCall()
        self._by_strategy: weakref.WeakKeyDictionary[Any, Function[..., Any]] = (
            weakref.WeakKeyDictionary()
        )
        self._host_runs: dict[Any, Function[..., Any]] = {}
        self._concrete: dict[Any, ConcreteFunction] = {}
        # Whether AutoGraph converts the function.
        self._conversion = conversion.Conversion(autograph)
        # Whether the function runs on the host, because a trace has shown that it must.
        self._is_host = False
        self._needs_jax = False  # In functions of datasets, as a call has shown.
        self._traces = 0
        # Whether variables may no longer be created: a trace has succeeded.
        self._has_created = False
        # Of a function made by `for_strategy`, the devices of the strategy.
        self._topology: Topology | None = None
        # Not its `__dict__`: that of a `Function` would replace the fields above.
        functools.update_wrapper(self, python_function, updated=())
        if name is not None:
            self.__name__ = name

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Run the compiled function; trace it first if the signature is new.

        Args:
            *args: the function's arguments. Arrays are inputs of the program; for
                each other value there is another program.
            **kwargs: its keyword arguments.

        Returns:
            The result of the function, with numbers as arrays.
        """
        last = self._last.found
        if last is not None and not kwargs and ambient.is_root() and is_clean():
            # The usual call: outside any scope or trace, and like the one before it.
            leaves: list[Any] = []
            rest = signature.flatten_arrays(args, leaves)
            if rest is None:
                leaves.clear()
                rest = signature.flatten(args, leaves, self._topology)
            if rest == last[0]:
                try:
                    return last[1].call(leaves)  # type: ignore[no-any-return]
                except traced_function.NeedsRetrace:
                    # JAX found shapes for which this program was not traced.
                    pass
        return self._call(args, kwargs)

    def _call(self, args: _Args, kwargs: _Kwargs, is_concrete: bool = False) -> _R_co:
        """Run a call that is not like the last one, and remember it if it is usual."""
        may_be_host = not (is_concrete or self._needs_jax)
        is_host = may_be_host and call_modes.may_run_on_host(args, kwargs)
        if self.input_signature is not None:
            args, kwargs = self._apply_signature(args, kwargs, is_host)
        if is_host:
            found = host_inputs.call(self.python_function, args, kwargs)
            self._needs_jax = not call_modes.is_of_host(found)
            return found
        frame = ambient.current()
        if not is_clean() or _is_inlined(frame):
            # A program is being traced, or a replica runs: take part in that.
            chosen = self._conversion.choose(self.python_function)
            made = unchanged_arguments.call(chosen, args, kwargs)
            return signature.read_variables(made)
        if (observer := call_modes.Observers.current) is not None:
            return observer(args, kwargs, lambda a, k: self._start(a, k, is_concrete))  # type: ignore[no-any-return]
        return self._start(args, kwargs, is_concrete)

    def _start(self, args: _Args, kwargs: _Kwargs, is_concrete: bool) -> _R_co:
        """Run a call that is part of no other program."""
        if Mode.is_eager and not is_concrete:
            return host_inputs.call(self.python_function, args, kwargs)
        if self._is_host:
            return self._run_on_host(args, kwargs)
        key, leaves, mesh = self._key_of(args, kwargs)
        result: _R_co = self._dispatch(key, leaves, mesh, args, kwargs)
        only = self._programs.find_only(key)
        usual = not (kwargs or Mode.is_eager) and self.input_signature is None
        usual = usual and ambient.is_root() and not call_modes.Observers.current
        # With several programs for one signature the shapes decide; then the short way
        # would have to look at them.
        self._last.found = None
        if usual and only is not None:
            # Without the defaults that `_key_of` has added.
            added = len(key[0][0][1]) > len(args)
            rest = signature.flatten(args, [], mesh) if added else key[0][0]
            self._last.found = rest, only
        return result

    def _key_of(self, args: _Args, kwargs: _Kwargs) -> tuple[_Key, list[Any], _Mesh]:
        """Return the key of a call's programs, its arrays and the devices for them."""
        if self.input_signature is None and self._order is not None:
            args, kwargs = self._order.put(args, kwargs)
        frame, leaves = ambient.current(), list[Any]()
        mesh = self._topology or (frame.placement and frame.placement.mesh)
        rest = tuple(signature.flatten(x, leaves, mesh) for x in (args, kwargs))
        # Weakly, so that a function keeps no strategy alive that it was called under.
        owner = None if frame.strategy is None else weakref.ref(frame.strategy)
        world = program_cache.World.current
        return (rest, owner, frame.mode, world), leaves, mesh

    def _dispatch(
        self, key: _Key, leaves: list[Any], mesh: _Mesh, args: _Args, kwargs: _Kwargs
    ) -> Any:
        """Run the program of a signature; trace it first if there is none."""
        has_plan = self._programs.plans.get(key)
        # A function that takes elements is found by them, too, once they are pulled.
        program = None if has_plan else self._programs.find(key, leaves)
        if program is not None:
            return program.call(leaves)
        try:
            return self._run_with_elements(key, leaves, mesh)
        except host_inputs.NeedsHost:
            self._is_host = True
        except host_inputs.SequenceEnd:
            raise host_inputs.EndOfSequenceError from None
        return self._run_on_host(args, kwargs)

    @functools.cached_property
    def _parameters(self) -> inspect.Signature:
        return inspect.signature(self.python_function)

    @functools.cached_property
    def _order(self) -> argument_order.ArgumentOrder | None:
        """Puts calls that mean the same in one form."""
        return argument_order.find_order(self.python_function)

    def _apply_signature(self, args: _Args, kwargs: _Kwargs, host: bool = False) -> Any:
        """Return the arguments in the order of the parameters, as the specs say."""
        assert self.input_signature is not None
        wanted = self.input_signature
        return argument_order.apply(self._parameters, args, kwargs, wanted, host)

    # Taking elements from iterators, and running on the host; see `host_inputs`.

    def _run_with_elements(self, key: _Key, leaves: list[Any], mesh: _Mesh) -> Any:
        """Run a call with the elements that it takes; put them back if it fails."""
        feeds = host_inputs.ElementFeeds(signature.find_iterators(key[0]), mesh)
        try:
            program = self._find_or_trace(key, leaves, mesh, feeds)
            return program.call([*leaves, *feeds.arrays])
        except BaseException:
            feeds.put_back()
            raise

    def _find_or_trace(
        self, key: _Key, leaves: list[Any], mesh: _Mesh, feeds: host_inputs.ElementFeeds
    ) -> programs.Program:
        """Return the program of a call, and pull the elements that it takes."""
        program = self._programs.find_fed(key, leaves, feeds)
        if program is not None:
            return program
        with self._programs.wait_for_traces():
            # Another thread may have traced it meanwhile.
            program = self._programs.find_fed(key, leaves, feeds)
            if program is None:
                # It pulls what it needs; each trace of a signature must take as many.
                program = self._trace(key, leaves, mesh, feeds)
                feeds.check_length(self._programs.plans.setdefault(key, feeds.plan[:]))
        return program

    def _run_on_host(self, args: _Args, kwargs: _Kwargs) -> _R_co:
        """Run the Python function itself; only its calls of `run` are compiled."""
        fn = self._conversion.apply(self.python_function)
        with ambient.push(host=self):
            made = host_inputs.call(fn, args, kwargs)
        return signature.convert_host_result(made)

    def compiled_run(self, fn: Callable[..., Any]) -> Function[..., Any]:
        """Returns a compiled version of a function for `Strategy.run`.

        A function that loops over a dataset runs as Python on the host. Each function
        that it passes to `Strategy.run` is compiled, and found again by its code and
        the objects that it captures.

        Args:
            fn: the replica function.

        >>> import unisono
        >>> host = unisono.function(lambda: None)
        >>> def make(factor):
        ...     return lambda x: x * factor
        >>> float(host.compiled_run(make(3.0))(2.0))
        6.0
        >>> host.compiled_run(make(3.0)) is host.compiled_run(make(3.0))
        True
        """
        key = host_inputs.closure_key(fn)
        return self._host_run(key, lambda: unchanged_arguments.give_copies(fn))

    def compiled_step(self, key: object, fn: Callable[..., Any]) -> Function[..., Any]:
        """Returns a compiled version of the body of a loop that runs on the host.

        Args:
            key: identifies the body, so that its compiled version is found again.
            fn: a function that runs the body.

        >>> import unisono
        >>> host = unisono.function(lambda: None)
        >>> step = host.compiled_step("double", lambda x: 2 * x)
        >>> int(step(3)), step is host.compiled_step("double", lambda x: 2 * x)
        (6, True)
        """
        return self._host_run(("step", key), lambda: fn)

    def _host_run(
        self, key: object, make: Callable[[], Callable[..., Any]]
    ) -> Function[..., Any]:
        """Return a compiled function by its key; make it if there is none."""
        made = self._host_runs.get(key)
        if made is None:
            if len(self._host_runs) >= _MAX_HOST_RUNS:
                # The oldest one: dicts keep the order of insertion.
                self._host_runs.pop(next(iter(self._host_runs), None), None)
            made = Function(make())
            made._programs.limit = self._programs.limit
            made._conversion = self._conversion
            # Another thread may have made one meanwhile; all must use the same.
            made = self._host_runs.setdefault(key, made)
        return made

    # Tracing.

    def _trace(
        self, key: _Key, leaves: list[Any], mesh: _Mesh, feeds: host_inputs.ElementFeeds
    ) -> programs.Program:
        """Trace the function, and return the program that serves the trace."""
        self._traces += 1
        fn, rest, may_create = self.python_function, key[0], not self._has_created
        chosen = self._conversion
        conversion.watch()
        found = traced_function.trace(fn, rest, leaves, mesh, may_create, feeds, chosen)
        given = [*leaves, *feeds.arrays]
        if found.created:
            # The first trace has created variables; they get their values now. Another
            # trace then has them as inputs.
            traced_function.materialize(found, given)
            self._has_created = True
            found = traced_function.trace(fn, rest, leaves, mesh, False, feeds, chosen)
        self._has_created = True
        found.name = getattr(self, "__name__", found.name)
        # Without elements this is `key`, by which `_call` looks for the program.
        key = ((*key[0], *feeds.parts), *key[1:])
        return self._programs.add(key, traced_function.aval_key(given), found)

    def for_strategy(self, strategy: Any) -> Function[..., Any]:
        """Returns the compiled function that runs this one on every replica.

        `Strategy.run` calls it.

        Args:
            strategy: the strategy whose replicas run the function.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> double = unisono.function(lambda x: x * 2.0)
        >>> x = unisono.distribute.PerReplica((3.0, 4.0))
        >>> [float(part) for part in double.for_strategy(strategy)(x).values]
        [6.0, 8.0]
        """
        known = self._by_strategy
        if program_cache.World.current is not None:
            known = program_cache.find_replica_functions(self)
        made = known.get(strategy)
        if made is None:
            # With an input_signature each replica's own arguments are checked.
            fn = self.python_function if self.input_signature is None else self
            body = unchanged_arguments.guard(fn, self._conversion)
            owner = weakref.ref(strategy)

            def run(*args: object, **kwargs: object) -> object:
                # The strategy is alive, because its `run` is what calls this. That has
                # made all checks, so there is only the rest of it to do.
                return owner()._run(body, args, kwargs)  # type: ignore[union-attr]  # noqa: SLF001

            run.__name__ = f"run_{getattr(body, '__name__', 'function')}"
            made = Function(run)
            made._conversion = self._conversion
            made._programs.limit = self._programs.limit
            mesh = getattr(strategy.extended, "_topology", None)
            made._topology = None if mesh is None or mesh.is_one_device else mesh
            made = known.setdefault(strategy, made)
        return made

    def experimental_get_tracing_count(self) -> int:
        """Returns how many times the function was traced.

        >>> import numpy as np
        >>> import unisono
        >>> double = unisono.function(lambda x: x * 2)
        >>> for value in (np.zeros(3), np.ones(3), np.zeros(4)):
        ...     _ = double(value)
        >>> double.experimental_get_tracing_count()
        2
        """
        return self._traces + sum(
            f.experimental_get_tracing_count() for f in self._by_strategy.values()
        )

    def lowered(self, *args: _P.args, **kwargs: _P.kwargs) -> jax.stages.Lowered:
        """Returns the `jax.stages.Lowered` program of a call, for inspection.

        The program does not run, but the function is traced if the signature is new.

        Args:
            *args: the arguments of the call.
            **kwargs: the keyword arguments of the call.

        >>> import numpy as np
        >>> import unisono
        >>> double = unisono.function(lambda x: x * 2)
        >>> text = double.lowered(np.zeros(3, np.float32)).as_text()
        >>> "stablehlo.multiply" in text, "tensor<3xf32>" in text
        (True, True)
        """
        program, given, _ = self._program_of(args, kwargs)
        return program.lower(given)

    def _program_of(
        self, args: _Args, kwargs: _Kwargs
    ) -> tuple[programs.Program, list[Any], tuple[Any, ...]]:
        """Return the program of a call, without running it.

        Returns:
            The program; the arrays to call it with; and where these come from: the
            arrays of the arguments, the iterators that it takes elements from, in
            order, and the arrays of each of these elements.

        Raises:
            EndOfSequenceError: an iterator has no element to trace the call with.
            ValueError: the function runs on the host, so it has no program.
        """
        key, leaves, mesh = self._key_of(args, kwargs)
        feeds = host_inputs.ElementFeeds(signature.find_iterators(key[0]), mesh)
        try:
            program = self._find_or_trace(key, leaves, mesh, feeds)
            origin = leaves, feeds.sources(), feeds.arrays_by_element()
            return program, [*leaves, *feeds.arrays], origin
        except host_inputs.NeedsHost:
            raise host_inputs.no_program_error(self) from None
        except host_inputs.SequenceEnd:
            raise host_inputs.EndOfSequenceError from None
        finally:
            feeds.put_back()

    def _trace_call(self, args: _Args, kwargs: _Kwargs) -> traced_function.TracedCall:
        """Return the trace of a call, without running it; see `traced_function`."""
        if self.input_signature is not None:
            args, kwargs = self._apply_signature(args, kwargs)
        program, given, origin = self._program_of(args, kwargs)
        return traced_function.TracedCall(program.traces.find_known(given), *origin)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """Returns the function for arguments of certain shapes, types and values.

        The function is traced now, unless it was traced before. It is compiled when it
        is called.

        Args:
            *args: the arguments: an array or a `TensorSpec` for each array, and other
                values as they are. With an `input_signature` you can leave them out.
            **kwargs: keyword arguments.

        Returns:
            A `ConcreteFunction`; the same one for the same arguments.

        Raises:
            TypeError: an argument is missing, or does not match the `input_signature`.
            ValueError: a spec does not give the number of axes, or the initial value
                of a variable that the function creates depends on an argument.

        >>> import unisono
        >>> square = unisono.function(lambda x: x * x)
        >>> found = square.get_concrete_function(unisono.TensorSpec((None, 2)))
        >>> found.structured_outputs
        TensorSpec(shape=(None, 2), dtype=float32, name=None)
        """
        given = self._specs_of(args, kwargs)
        strategy = ambient.current().strategy
        owner = None if strategy is None else weakref.ref(strategy)
        key = (concrete_function.key_of(given), owner)
        made = self._concrete.get(key)
        if made is None:
            traces = []
            for size in concrete_function.sizes_of(list(given)):
                called = concrete_function.placeholders(given, size)
                program, arrays, _ = self._program_of(*called)
                traces.append(program.traces.find_known(arrays))
            made = ConcreteFunction(
                self._call_compiled, self._parameters, given, traces
            )
            made = self._concrete.setdefault(key, made)
        return made

    def _specs_of(self, args: _Args, kwargs: _Kwargs) -> tuple[tuple[Any, ...], Any]:
        """Return arguments with specs in place of arrays, as the signature has them."""
        if self.input_signature is None:
            bound = self._parameters.bind(*args, **kwargs)
            bound.apply_defaults()
            return concrete_function.as_specs((bound.args, bound.kwargs))  # type: ignore[no-any-return]
        wanted = tuple(self.input_signature)
        if args or kwargs:
            called, named = concrete_function.placeholders((args, kwargs), 1)
            argument_order.apply(self._parameters, called, named, wanted)
        return wanted, {}

    def _call_compiled(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Run the program of a call, also where functions run as plain Python."""
        if Mode.is_eager:
            return self._call(args, kwargs, is_concrete=True)
        return self(*args, **kwargs)

    @overload
    def __get__(
        self, instance: None, owner: type[Any] | None = None
    ) -> Function[_P, _R_co]: ...

    @overload
    def __get__(
        self: Function[Concatenate[Any, _Rest], _R],
        instance: object,
        owner: type[Any] | None = None,
    ) -> Method[_Rest, _R]: ...

    def __get__(self, instance: object, owner: object = None) -> Any:
        """Return the compiled method of an instance, or the function of the class."""
        return (
            self if instance is None else Method(instance, self._bind(instance, owner))
        )

    def _bind(self, instance: object, owner: object) -> Function[..., Any]:
        """Return the compiled function of one instance."""
        known = self._bound.get(id(instance))
        if known is not None and known[0]() is instance:
            return known[1]
        method: Any = self.python_function
        chosen = self._conversion
        number = id(instance)
        try:
            # Weakly, so that the object can go although its function is kept here. The
            # entry goes with it: another object may get the same id.
            alive = weakref.ref(instance, lambda _: self._bound.pop(number, None))
        except TypeError:
            # The object allows no weak reference; its function is made at every call.
            return self._wrap_method(method.__get__(instance, owner))

        @functools.wraps(method)
        def call(*args: object, **kwargs: object) -> object:
            return chosen.choose(method)(alive(), *args, **kwargs)

        call.__signature__ = signature.without_self(method)  # type: ignore[attr-defined]
        made = self._wrap_method(call)
        known = self._bound.setdefault(number, (alive, made))
        if known[0]() is not instance:
            known = self._bound[number] = (alive, made)
        return known[1]

    def _wrap_method(self, method: Callable[..., Any]) -> Function[..., Any]:
        """Return a function of a bound method, with the options of this one."""
        made = Function(method, self.input_signature, None, self._programs.limit.count)
        made._conversion = self._conversion
        return made

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Return how a copy is made, or a pickle: by its Python function, untraced.

        A function that its module has under its name is found there again, as Python's
        functions are. Those of the main module are not in other processes.
        """
        name, limit = getattr(self, "__name__", None), self._programs.limit.count
        is_allowed = self._conversion.is_allowed
        made_of = self.python_function, self.input_signature, name, limit, is_allowed
        return public_names.find_path(self) or (type(self), made_of)

    def __repr__(self) -> str:
        name = getattr(self, "__name__", repr(self.python_function))
        return f"<unisono.function {name}, traced {self._traces}×>"


@final
class Method(Generic[_P, _R_co]):
    """A compiled method that is bound to its object."""

    def __init__(self, instance: object, function: Function[_P, _R_co]) -> None:
        self.__self__ = instance
        self.function = function

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Run the compiled method of the object."""
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.__self__, self.function.__name__)

    def __repr__(self) -> str:
        return f"<bound {self.function!r} of {self.__self__!r}>"


def find_compiled(
    fn: Callable[..., Any], host: ambient.Host | None
) -> Function[..., Any] | None:
    """Return the compiled form of a replica function, or None if it has none.

    Args:
        fn: the replica function.
        host: the `Function` that calls `Strategy.run` on the host, if one does.
    """
    if Mode.is_eager:
        return None
    if isinstance(fn, Method):
        return fn.function
    if isinstance(fn, Function):
        return fn
    return None if host is None else host.compiled_run(fn)


def find_conversion(fn: Any) -> conversion.Conversion:
    """Return whether AutoGraph converts a function that is compiled."""
    found: conversion.Conversion = getattr(fn, "_conversion", conversion.Conversion())
    return found


# The types of callables that are compiled when they are called.
COMPILED = (Function, Method)


def is_function(fn: object) -> bool:
    """Whether `fn` is compiled when it is called."""
    return isinstance(fn, COMPILED)


def python_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function behind `fn`, which may be compiled."""
    return fn.python_function if isinstance(fn, COMPILED) else fn


forks.refuse(Function, "__call__")
