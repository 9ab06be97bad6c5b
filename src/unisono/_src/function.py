"""`unisono.function`: compile a Python function together with its variables."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from unisono._src import ambient, programs, signature, state
from unisono._src.topology import Topology

_NO_KWARGS = signature.flatten({}, [], None)


def is_compiling() -> bool:
    """Whether the running code is being traced by a `function`."""
    return state.frame().is_compiled


def _is_inline(frame: ambient.Frame) -> bool:
    """Whether a `function` called here is part of something larger."""
    if frame.state is not None:
        return True
    return frame.port is not None or frame.mode == ambient.UPDATE


class Function:
    """A Python function that is traced once per signature and then runs compiled.

    Made by `unisono.function`. Variables that the function reads or assigns are found
    by themselves; their arrays go in and come out of one XLA program.
    """

    def __init__(
        self,
        python_function: Callable[..., Any],
        input_signature: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> None:
        self.python_function = python_function
        self.input_signature = input_signature
        self._programs: dict[Any, list[programs.Program]] = {}
        self._last: tuple[Any, programs.Program] | None = None
        self._by_strategy: weakref.WeakKeyDictionary[Any, Function] = (
            weakref.WeakKeyDictionary()
        )
        self._traces = 0
        self._has_created = False
        self._topology: Topology | None = None
        functools.update_wrapper(self, python_function)
        if name is not None:
            self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled function; trace it first if the signature is new."""
        frame = ambient.current()
        mesh = self._topology
        if frame is not ambient.ROOT:
            if _is_inline(frame):
                return self.python_function(*args, **kwargs)
            mesh = mesh or _mesh(frame)
        if self.input_signature is not None:
            args = self._checked(args, kwargs)
            kwargs = {}
        leaves: list[Any] = []
        rest = signature.flatten(args, leaves, mesh)
        if kwargs:
            rest = (rest, signature.flatten(kwargs, leaves, mesh))
        else:
            rest = (rest, _NO_KWARGS)
        key = (rest, frame.strategy, frame.mode)
        last = self._last
        if last is not None and last[0] == key:
            program = last[1]
        else:
            found = self._programs.get(key)
            if not found:
                return self._slow(key, rest, leaves, mesh)
            program = found[-1]
            self._last = (key, program)
        try:
            return program(leaves)
        except programs.Miss:
            return self._slow(key, rest, leaves, mesh)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self.input_signature is not None
        return signature.apply_specs((*args, *kwargs.values()), self.input_signature)

    def _slow(self, key: Any, rest: Any, leaves: list[Any], mesh: Any) -> Any:
        """Another program of this signature, or a new trace."""
        known = self._programs.setdefault(key, [])
        for program in reversed(known[:-1]):
            try:
                result = program(leaves)
            except programs.Miss:
                continue
            known.remove(program)
            known.append(program)
            self._last = (key, program)
            return result
        program = self._trace(known, rest, leaves, mesh)
        self._last = (key, program)
        return program(leaves)

    def _trace(
        self, known: list[programs.Program], rest: Any, leaves: list[Any], mesh: Any
    ) -> programs.Program:
        self._traces += 1
        found = programs.trace(
            self.python_function, rest, leaves, mesh, not self._has_created
        )
        if found.created:
            programs.materialize(found, leaves)
            self._has_created = True
            found = programs.trace(self.python_function, rest, leaves, mesh, False)
        self._has_created = True
        shapes = programs.aval_key(leaves)
        for program in known:
            if program.fits(found):
                program.add(shapes, found)
                known.remove(program)
                known.append(program)
                return program
        program = programs.Program(found)
        program.add(shapes, found)
        known.append(program)
        return program

    def for_strategy(self, strategy: Any) -> Function:
        """The function that runs this one on every replica of `strategy`."""
        made = self._by_strategy.get(strategy)
        if made is None:
            body = self.python_function
            owner = weakref.ref(strategy)

            def run(*args: Any, **kwargs: Any) -> Any:
                return owner()._run(body, args, kwargs)  # type: ignore[union-attr]

            run.__name__ = f"run_{getattr(body, '__name__', 'function')}"
            made = Function(run)
            made._topology = getattr(strategy.extended, "_topology", None)
            if made._topology is not None and made._topology.replicas == 1:
                made._topology = None
            self._by_strategy[strategy] = made
        return made

    def experimental_get_tracing_count(self) -> int:
        """How many signatures were traced."""
        return self._traces + sum(
            f.experimental_get_tracing_count() for f in self._by_strategy.values()
        )

    def lowered(self, *args: Any, **kwargs: Any) -> Any:
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
        key = (rest, frame.strategy, frame.mode)
        known = self._programs.setdefault(key, [])
        for program in reversed(known):
            try:
                return program.lowered(leaves)
            except programs.Miss:
                continue
        return self._trace(known, rest, leaves, mesh).lowered(leaves)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method of a class: one compiled function per instance."""
        if instance is None:
            return self
        name = f"_unisono_function_{id(self)}"
        bound = instance.__dict__.get(name)
        if bound is None:
            method = self.python_function.__get__(instance, owner)
            bound = Function(method, self.input_signature)
            instance.__dict__[name] = bound
        return bound

    def __repr__(self) -> str:
        name = getattr(self, "__name__", repr(self.python_function))
        return f"<unisono.function {name}, traced {self._traces}×>"


def _mesh(frame: ambient.Frame) -> Topology | None:
    """The devices of the strategy in scope, if there are several."""
    if frame.placement is None or frame.placement.topology.replicas == 1:
        return None
    return frame.placement.topology


def python_function(fn: Any) -> Callable[..., Any]:
    """The Python function behind `fn`, which may be compiled."""
    return fn.python_function if isinstance(fn, Function) else fn


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_implements: str | None = None,
    experimental_autograph_options: Any = None,
    experimental_attributes: Any = None,
    experimental_relax_shapes: bool | None = None,
    experimental_compile: bool | None = None,
    experimental_follow_type_hints: bool | None = None,
) -> Any:
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
