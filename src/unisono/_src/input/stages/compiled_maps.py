"""Runs maps as compiled programs over many elements at once, where a program asks."""

from __future__ import annotations

import dataclasses
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.execution import equations
from unisono._src.foundation import ambient, jax_internals
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.stages import dataset_options, map_processes, mapping

_OPTION = "The option compiled_maps"


def _draws() -> tuple[object, ...]:
    """Returns what changes when Python's or NumPy's own generator draws a number."""
    return random.getstate(), str(np.random.get_state(legacy=False))


@final
class _Program:
    """A function of one element as a program for many.

    Args:
        fn: the user's function.
        batch: elements, stacked: their shapes and types decide on the program.
    """

    def __init__(self, fn: Callable[..., Any], batch: object) -> None:
        self._fn = fn
        before = _draws()
        traced = [self._trace(batch) for _ in range(2)]
        # Random numbers and what the function counts are constants of a trace. Two
        # random ones may be the same.
        is_same = equations.is_same(*traced) and before == _draws()
        if not is_same or traced[0].effects:
            raise ValueError(
                f"{_OPTION} is for functions that always compute the same; "
                f"{self._name()} draws random numbers, prints, or depends on a value "
                "of Python that changes. Leave the option out for this dataset."
            )
        self._call = jax.jit(jax_internals.jaxpr_as_fun(traced[0]))
        inputs = traced[0].jaxpr.invars
        # What the function returns unchanged stays on the host.
        self._given = [
            inputs.index(x) if x in inputs else None for x in traced[0].jaxpr.outvars
        ]

    def _name(self) -> str:
        return getattr(self._fn, "__name__", type(self._fn).__name__)

    def _trace(self, batch: object) -> Any:
        def call(leaves: list[Any]) -> list[Any]:
            rows = iter(leaves)
            element = elements.map_leaves(lambda _: next(rows), batch)
            is_several = isinstance(element, tuple) and not hasattr(element, "_fields")
            made = self._fn(*element) if is_several else self._fn(element)
            self._made = tuple(made) if isinstance(made, list) else made
            return list(elements.leaves(self._made))

        # Names compute with JAX while they are traced, as in any program.
        before = ambient.enter_dataset(False)
        try:
            return jax.make_jaxpr(jax.vmap(call))(list(elements.leaves(batch)))
        except Exception as e:
            raise ValueError(
                f"{_OPTION} needs functions that JAX can trace. {self._name()} failed: "
                f"{type(e).__name__}: {e}"
            ) from e
        finally:
            ambient.enter_dataset(before)

    def __call__(self, batch: object) -> object:
        """Returns what the function makes of elements, stacked."""
        leaves = list(elements.leaves(batch))
        found = self._call(*leaves)
        rows = iter(
            leaves[i] if i is not None else np.asarray(x)
            for x, i in zip(found, self._given, strict=True)
        )
        return elements.map_leaves(lambda _: next(rows), self._made)

    def check(self, wanted: object, made: object) -> None:
        """Raises `ValueError` unless results have the shape and type of the host's."""
        pairs = zip(elements.leaves(wanted), elements.leaves(made), strict=True)
        for one, many in pairs:
            told = elements.as_array(one)
            if (told.dtype, told.shape) != (many.dtype, many.shape[1:]):
                raise ValueError(
                    f"{_OPTION} gives what JAX computes: {self._name()} returns "
                    f"{many.dtype}{list(many.shape[1:])} there, and "
                    f"{told.dtype}{list(told.shape)} without the option. Convert the "
                    "result, as in unisono.cast(x, unisono.float32), or leave the "
                    "option out."
                )


@final
class _Compiled(cursors.FunctionCursor):
    """Gives the results of a compiled function; reads no further than it is asked."""

    def __init__(self, node: mapping.Map) -> None:
        super().__init__(node.parent.cursor())
        self._fn = node.fn
        self._programs: dict[object, _Program] = {}

    def read(self, count: int) -> Sequence[Any]:
        block = list(self._block(count))
        if not block:
            return []
        try:
            made = self._apply(elements.stack(block))
        except BaseException:
            self._keep(iter(block))
            raise
        return [
            elements.map_leaves(operator.itemgetter(i), made) for i in range(len(block))
        ]

    def _apply(self, batch: object) -> object:
        leaves = [(path, elements.as_array(x)) for path, x in elements.paths(batch)]
        for path, x in leaves:
            if x.dtype.kind == "O":
                raise ValueError(
                    f"{_OPTION} is for numbers; {path or 'the element'} is text."
                )
        key = tuple((path, x.shape, x.dtype) for path, x in leaves)
        cpu = jax.local_devices(backend="cpu")[0]
        # TensorFlow's types, on the host: the accelerator is for the training step.
        if key in self._programs:
            with jax.enable_x64(True), jax.default_device(cpu):
                return self._programs[key](batch)
        wanted = self._call_on_host(batch)
        with jax.enable_x64(True), jax.default_device(cpu):
            program = _Program(self._fn, batch)
            made = program(batch)
        program.check(wanted, made)
        self._programs[key] = program
        return made

    def _call_on_host(self, batch: object) -> object:
        """Returns the first result, or raises, as without the option."""
        first = elements.map_leaves(operator.itemgetter(0), batch)
        return elements.convert(mapping.call(self._fn, first))


def run_as_asked(node: nodes.Node, options: dataset_options.Options) -> nodes.Node:
    """Returns a plan whose maps run as its options say."""
    if not options.compiled_maps:
        return map_processes.run_in_processes(node, options.worker_processes)

    def change(node: nodes.Node) -> nodes.Node | None:
        if isinstance(node, mapping.Map):
            return dataclasses.replace(node, run=_Compiled)
        return None

    return nodes.rewrite(node, change)
