"""`unisono.function`: compile a Python function together with its variables."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, final, overload

import jax

from unisono._src.execution import host_inputs, programs, signature
from unisono._src.foundation import ambient
from unisono._src.foundation.public_names import publish
from unisono._src.machines.topology import Topology
from unisono._src.state import frames
from unisono._src.values import collectives

_P = ParamSpec("_P")
_Rest = ParamSpec("_Rest")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)

_MOST_HOST_RUNS = 128
is_clean = collectives.is_clean


def is_compiling() -> bool:
    """Whether the running code is being traced by a `function`."""
    return frames.frame().is_compiled


def _without_first(method: Callable[..., Any]) -> inspect.Signature:
    """The signature of a method as its caller sees it."""
    found = inspect.signature(method)
    return found.replace(parameters=list(found.parameters.values())[1:])


def _inlines(frame: ambient.Frame) -> bool:
    """Whether a `function` called here is part of something larger."""
    if frame.state is not None:
        return True
    return frame.port is not None or frame.mode == ambient.UPDATE


class Function(Generic[_P, _R_co]):
    """A Python function that is traced once per signature and then runs compiled.

    Made by `unisono.function`. Variables that the function reads or assigns are found
    by themselves; their arrays go in and come out of one XLA program.
    """

    def __init__(
        self,
        python_function: Callable[_P, _R_co],
        input_signature: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> None:
        self.python_function: Callable[_P, _R_co] = (
            python_function.python_function
            if isinstance(python_function, Function)
            else python_function
        )
        self.input_signature = input_signature
        self._bound: dict[int, tuple[Any, Function[..., Any]]] = {}
        self._programs: dict[Any, list[programs.Program]] = {}
        self._last: tuple[Any, programs.Program] | None = None
        self._by_strategy: weakref.WeakKeyDictionary[Any, Function[..., Any]] = (
            weakref.WeakKeyDictionary()
        )
        self._plans: dict[Any, list[Any]] = {}
        self._host_runs: dict[Any, Function[..., Any]] = {}
        self._is_host = False
        self._traces = 0
        self._has_created = False
        self._topology: Topology | None = None
        functools.update_wrapper(self, python_function, updated=())
        if name is not None:
            self.__name__ = name

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Run the compiled function; trace it first if the signature is new."""
        last = self._last
        if last is not None and not kwargs and ambient.is_root() and is_clean():
            # The usual call: like the one before it, and outside everything.
            leaves: list[Any] = []
            rest = signature.flatten_usual(args, leaves)
            if rest is None:
                leaves.clear()
                rest = signature.flatten(args, leaves, self._topology)
            if rest == last[0]:
                try:
                    return last[1].call(leaves)  # type: ignore[no-any-return]
                except programs.Miss:
                    pass
        return self._call(args, kwargs)  # type: ignore[no-any-return]

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.input_signature is not None:
            args, kwargs = self._checked(args, kwargs)
        frame = ambient.current()
        if not is_clean() or _inlines(frame):
            # Part of something larger: a program being made, or a replica.
            return self.python_function(*args, **kwargs)
        if self._is_host:
            return self._run_on_host(args, kwargs)
        mesh = self._topology or _mesh(frame)
        leaves: list[Any] = []
        rest = signature.flatten(args, leaves, mesh)
        more = signature.flatten(kwargs, leaves, mesh)
        # Weakly: a function must not keep every strategy that it was called under.
        owner = None if frame.strategy is None else weakref.ref(frame.strategy)
        key = ((rest, more), owner, frame.mode)
        result = self._find(key, leaves, mesh, args, kwargs)
        known = self._programs.get(key, ())
        usual = not kwargs and self.input_signature is None and ambient.is_root()
        # With several programs for one signature the shapes decide, so look first.
        self._last = (rest, known[0]) if usual and len(known) == 1 else None
        return result

    def _find(
        self, key: Any, leaves: list[Any], mesh: Any, args: Any, kwargs: Any
    ) -> Any:
        """Another signature or other shapes than those of the last call."""
        if key in self._plans:
            return self._fed(key, leaves, mesh)
        program = self._program_for(key, leaves)
        if program is None:
            return self._slow(key, leaves, mesh, args, kwargs)
        return program.call(leaves)

    def _program_for(self, key: Any, leaves: list[Any]) -> programs.Program | None:
        found = self._programs.get(key, ())
        shapes = programs.aval_key(leaves) if found else None
        return next((p for p in found if p.serves(shapes)), None)

    @functools.cached_property
    def _parameters(self) -> inspect.Signature:
        return inspect.signature(self.python_function)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Arguments in the order of the parameters, checked against the specs."""
        assert self.input_signature is not None
        bound = self._parameters.bind(*args, **kwargs)
        given = (*bound.args, *bound.kwargs.values())
        return signature.apply_specs(given, self.input_signature), {}

    # Feeding from iterators, and running on the host; see `feeds`.

    def _fed(self, key: Any, leaves: list[Any], mesh: Any) -> Any:
        """Pull an element from each planned iterator, then run."""
        iterators = signature.sources(key[0])
        pulled = host_inputs.pull_all(self._plans[key], iterators)
        return self._run_fed(key, leaves, mesh, pulled, iterators)

    def _run_fed(
        self, key: Any, leaves: list[Any], mesh: Any, pulled: Any, iterators: Any
    ) -> Any:
        given = list(leaves)
        parts = [signature.flatten(element, given, mesh) for _, element in pulled]
        fed_key = ((*key[0], *parts), *key[1:])
        try:
            program = self._program_for(fed_key, given)
            if program is None:
                plan = [source for source, _ in pulled]
                program = self._traced(fed_key, given, mesh, plan)
            return program.call(given)
        except BaseException:
            host_inputs.put_back_all(pulled, iterators)
            raise

    def _run_on_host(self, args: Any, kwargs: Any) -> Any:
        with ambient.pushed(host=self):
            try:
                return self.python_function(*args, **kwargs)
            except StopIteration:
                raise host_inputs.EndOfSequenceError from None

    def compiled_run(self, fn: Callable[..., Any]) -> Function[..., Any]:
        """The compiled form of a replica function that this function runs on hosts."""
        key = host_inputs.closure_key(fn)
        made = self._host_runs.get(key)
        if made is None:
            if len(self._host_runs) >= _MOST_HOST_RUNS:
                self._host_runs.pop(next(iter(self._host_runs)))
            made = self._host_runs[key] = Function(fn)
        return made

    # Tracing.

    def _slow(
        self, key: Any, leaves: list[Any], mesh: Any, args: Any, kwargs: Any
    ) -> Any:
        """Trace the function, and find out whether it needs the host."""
        iterators = signature.sources(key[0])
        try:
            program = self._traced(key, leaves, mesh, [])
        except host_inputs.NeedsHost:
            self._is_host = True
            return self._run_on_host(args, kwargs)
        except host_inputs.NeedsFeed as need:
            return self._discover(key, leaves, mesh, need.source, iterators)
        return program.call(leaves)

    def _discover(
        self, key: Any, leaves: list[Any], mesh: Any, source: Any, iterators: Any
    ) -> Any:
        """Find out which elements a call takes, one more with every trace."""
        plan = [source]
        while True:
            pulled = host_inputs.pull_all(plan, iterators)
            try:
                result = self._run_fed(key, leaves, mesh, pulled, iterators)
            except host_inputs.NeedsFeed as need:
                plan.append(need.source)
                continue
            self._plans[key] = plan
            return result

    def _traced(
        self, key: Any, leaves: list[Any], mesh: Any, plan: Sequence[Any]
    ) -> programs.Program:
        self._traces += 1
        fn, rest = self.python_function, key[0]
        may_create = not self._has_created
        found = programs.trace(fn, rest, leaves, mesh, may_create, plan)
        if found.created:
            programs.materialize(found, leaves)
            self._has_created = True
            found = programs.trace(fn, rest, leaves, mesh, False, plan)
        self._has_created = True
        found.name = getattr(self, "__name__", found.name)
        shapes = programs.aval_key(leaves)
        known = self._programs.setdefault(key, [])
        for program in known:
            if program.fits(found):
                program.add(shapes, found)
                return program
        program = programs.Program(found)
        program.add(shapes, found)
        known.append(program)
        return program

    def for_strategy(self, strategy: Any) -> Function[..., Any]:
        """The function that runs this one on every replica of `strategy`."""
        made = self._by_strategy.get(strategy)
        if made is None:
            # With an input_signature each replica's own arguments are checked.
            body = self.python_function if self.input_signature is None else self
            owner = weakref.ref(strategy)

            def run(*args: Any, **kwargs: Any) -> Any:
                return owner()._run(body, args, kwargs)  # type: ignore[union-attr]

            run.__name__ = f"run_{getattr(body, '__name__', 'function')}"
            made = Function(run)
            made._topology = getattr(strategy.extended, "_topology", None)
            if made._topology is not None and made._topology.is_one_device:
                made._topology = None
            self._by_strategy[strategy] = made
        return made

    def experimental_get_tracing_count(self) -> int:
        """How many signatures were traced."""
        return self._traces + sum(
            f.experimental_get_tracing_count() for f in self._by_strategy.values()
        )

    def lowered(self, *args: _P.args, **kwargs: _P.kwargs) -> jax.stages.Lowered:
        """The `jax.stages.Lowered` program of a call, for inspection.

        Runs nothing, but traces the function if the signature is new.
        """
        frame = ambient.current()
        leaves: list[Any] = []
        mesh = self._topology or _mesh(frame)
        rest = (
            signature.flatten(args, leaves, mesh),
            signature.flatten(kwargs, leaves, mesh),
        )
        owner = None if frame.strategy is None else weakref.ref(frame.strategy)
        key = (rest, owner, frame.mode)
        program = self._program_for(key, leaves)
        if program is None:
            program = self._traced(key, leaves, mesh, [])
        lowered: jax.stages.Lowered = program.lowered(leaves)
        return lowered

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

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method of a class: one compiled function per instance."""
        return self if instance is None else Method(instance, self._of(instance, owner))

    def _of(self, instance: Any, owner: Any) -> Function[..., Any]:
        known = self._bound.get(id(instance))
        if known is not None and known[0]() is instance:
            return known[1]
        method: Any = self.python_function
        number = id(instance)
        try:
            # Weakly, so that the object can go although its method is kept here.
            alive = weakref.ref(instance, lambda _: self._bound.pop(number, None))
        except TypeError:
            return Function(method.__get__(instance, owner), self.input_signature)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return method(alive(), *args, **kwargs)

        call.__signature__ = _without_first(method)  # type: ignore[attr-defined]
        made = Function(call, self.input_signature)
        self._bound[number] = (alive, made)
        return made

    def __repr__(self) -> str:
        name = getattr(self, "__name__", repr(self.python_function))
        return f"<unisono.function {name}, traced {self._traces}×>"


@final
class Method(Generic[_P, _R_co]):
    """A compiled method bound to its object."""

    def __init__(self, instance: Any, function: Function[_P, _R_co]) -> None:
        self.__self__ = instance
        self.function = function

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Run the compiled method."""
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __repr__(self) -> str:
        return f"<bound {self.function!r} of {self.__self__!r}>"


def _mesh(frame: ambient.Frame) -> Topology | None:
    """The devices of the strategy in scope, if there are several."""
    if frame.placement is None or frame.placement.topology.is_one_device:
        return None
    topology: Topology = frame.placement.topology
    return topology


def compiled(fn: Any, host: Function[..., Any] | None) -> Function[..., Any] | None:
    """The compiled form of a replica function, if it has one.

    Args:
        fn: the replica function.
        host: the function on whose behalf it runs, if that one is on the host.
    """
    if isinstance(fn, Method):
        return fn.function
    if isinstance(fn, Function):
        return fn
    return None if host is None else host.compiled_run(fn)


# What is compiled when it is called.
COMPILED = (Function, Method)


def is_function(fn: Any) -> bool:
    """Whether `fn` is compiled when it is called."""
    return isinstance(fn, COMPILED)


def python_function(fn: Any) -> Any:
    """The Python function behind `fn`, which may be compiled."""
    return fn.python_function if is_function(fn) else fn


@overload
def function(
    func: Callable[_P, _R],
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Function[_P, _R]: ...


@overload
def function(
    func: None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Callable[[Callable[_P, _R]], Function[_P, _R]]: ...


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: object = None,
    experimental_attributes: object = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Function[..., Any] | Callable[[Callable[..., Any]], Function[..., Any]]:
    """Compile a Python function with the variables it uses; use as a decorator.

    The function is traced once for each combination of shapes and types of its array
    arguments and of values of its other arguments; later calls run the compiled
    program. Variables may be created on the first call only.

    Args:
        func: the function; None gives a decorator.
        input_signature: `TensorSpec`s that arguments must match; numbers become arrays.
        autograph: accepted; Python control flow on arrays is written with
            `jax.lax.cond`, `scan` and `while_loop`.
        jit_compile: accepted; functions are always compiled by XLA.
        reduce_retracing: accepted; XLA programs have fixed shapes.
        experimental_implements: accepted, no effect.
        experimental_autograph_options: accepted, no effect.
        experimental_attributes: accepted, no effect.
        experimental_relax_shapes: accepted, no effect.
        experimental_compile: accepted, no effect.
        experimental_follow_type_hints: accepted, no effect.

    >>> import unisono
    >>> v = unisono.Variable(1.0)
    >>> @unisono.function
    ... def double():
    ...     return v.assign(v * 2.0)
    >>> float(double()), float(double())
    (2.0, 4.0)
    """
    if func is None:
        return lambda f: Function(f, input_signature)
    return Function(func, input_signature)


publish("unisono", Function, function)
