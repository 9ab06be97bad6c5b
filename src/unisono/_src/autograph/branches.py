"""`if`, conditional expressions, `and`, `or`, `not` and `assert` on any values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import jax.numpy as jnp

from unisono._src.autograph import carried, jumps
from unisono._src.autograph.carried import UNDEFINED, Symbol
from unisono._src.ops import bodies, checks, tensors
from unisono._src.state import frames

_Block = Callable[[], Any]
# The marks of a value, and the shapes and types of its arrays.
_Fill = tuple[Any, list[Any]]
_BRANCHES = ("main", "else")


def if_stmt(
    test: object, body: _Block, orelse: _Block, symbols: Sequence[Symbol], letters: str
) -> None:
    """Runs an `if`; in a program whose condition is not known, as a branch of it.

    Args:
        test: the condition.
        body: runs the statements of `if`.
        orelse: runs those of `else`.
        symbols: the names that either assigns.
        letters: how each of them is used later; see `rewriting`.
    """
    is_known, value = carried.find_known(test)
    if is_known:
        if value:
            body()
        else:
            orelse()
        return
    _Choice(test, (body, orelse), symbols, letters).run()


@final
@dataclasses.dataclass
class _Branch:
    """One branch, traced.

    Attributes:
        body: its program, which returns the arrays of the names.
        marks: by name, the value without its arrays; names without one are left out.
        leaves: by name, the shapes and types of the arrays.
        flags: by name, the flags of jumps that are certainly set or not.
    """

    body: bodies.Body
    marks: dict[str, Any]
    leaves: dict[str, list[Any]]
    flags: dict[str, bool]


@final
class _Choice:
    """An `if` that becomes a part of the program."""

    def __init__(
        self,
        test: object,
        blocks: Sequence[_Block],
        symbols: Sequence[Symbol],
        letters: str,
    ) -> None:
        self._test = carried.as_condition(test, "`if`")
        self._blocks = blocks
        self._every = symbols
        self._before = [carried.read(s) for s in symbols]
        used = list(zip(symbols, letters, strict=True))
        self._symbols = {s.name: s for s, x in used if x != "-"}
        # Names that only functions inside read: nobody knows whether they ever do.
        self._plain: set[str] = set()
        self._soft = {s.name for s, x in used if x == "c"}

    def run(self) -> None:
        """Traces both branches, and sets the names to what the program chooses."""
        try:
            self._choose()
        except BaseException:
            # Attributes must not keep what a trace that is given up has made.
            carried.write(self._every, self._before)
            raise

    def _choose(self) -> None:
        program = frames.outermost()
        seeded = program.seeded
        every = list(self._symbols)
        main, other = self._trace(0, every), self._trace(1, every)
        names = self._find_kept(main, other)
        fills = [_find_fill(other, main), _find_fill(main, other)]
        if names != every or any(fills) or main.marks != other.marks:
            # Once more, for exactly these names; the random operations are the same. A
            # variable in one branch and an array in the other become arrays.
            program.seeded = seeded
            self._plain = {n for n in names if main.marks.get(n) != other.marks.get(n)}
            main = self._trace(0, names, fills[0])
            other = self._trace(1, names, fills[1])
        _check_alike(main, other)
        # In this order, because the condition is the index: 0 is false.
        out = iter(bodies.switch(self._test, [other.body, main.body]))
        carried.write(self._every, self._before)
        for name, symbol in self._symbols.items():
            mark = main.marks.get(name)
            value = UNDEFINED if mark is None else carried.join(mark, out)
            flag = main.flags.get(name)
            if flag is not None and flag is other.flags.get(name):
                value = flag  # Both branches return, so nothing behind them runs.
            carried.write([symbol], [value])

    def _trace(
        self, which: int, names: Sequence[str], fill: _Fill | None = None
    ) -> _Branch:
        """Returns one branch, whose program returns the values of some names."""
        marks: dict[str, Any] = {}
        counts: list[int] = []
        flags: dict[str, bool] = {}

        def run() -> list[Any]:
            carried.write(self._every, self._before)
            self._blocks[which]()
            marks.clear()
            counts.clear()
            flags.clear()
            leaves: list[Any] = []
            for name in names:
                value = carried.read(self._symbols[name])
                if value is UNDEFINED and name == jumps.RESULT and fill is not None:
                    zeros = iter([jnp.zeros(a.shape, a.dtype) for a in fill[1]])
                    value = carried.join(fill[0], zeros)
                if isinstance(value, bool) and name.startswith(jumps.FLAGS):
                    flags[name] = value
                if value is not UNDEFINED:
                    if name in self._plain:
                        value = carried.as_arrays(value)
                    marks[name], found = carried.split(value)
                    counts.append(len(found))
                    leaves += found
            return leaves

        body = bodies.trace(run, ())
        every = iter(body.rebuild(body.avals()))
        parts = [[next(every) for _ in range(count)] for count in counts]
        return _Branch(body, marks, dict(zip(marks, parts, strict=True)), flags)

    def _find_kept(self, main: _Branch, other: _Branch) -> list[str]:
        """Returns the names that have a value after both branches."""
        kept = []
        for name in self._symbols:
            missing = [name not in b.marks for b in (main, other)]
            if not any(missing) or (name == jumps.RESULT and not all(missing)):
                kept.append(name)
            elif not all(missing) and name not in self._soft:
                branch = _BRANCHES[missing.index(True)]
                raise ValueError(
                    f"{carried.where()}{carried.told(name)} must also be initialized "
                    f"in the {branch} branch of `if`: the condition is only known when "
                    "the compiled step runs, and later code reads it."
                )
        return kept


def _find_fill(whole: _Branch, empty: _Branch) -> _Fill | None:
    """Returns what stands for the result of a branch that does not return."""
    name = jumps.RESULT
    if name in empty.marks or name not in whole.marks:
        return None
    return whole.marks[name], whole.leaves[name]


def _check_alike(main: _Branch, other: _Branch) -> None:
    """Raises unless both branches leave values of one kind.

    Raises:
        TypeError: a name has another type or structure in one of them.
        ValueError: it has another shape.
    """
    for name in main.marks:
        kinds = [
            [
                (getattr(a, "dtype", None), getattr(a, "shape", None))
                for a in b.leaves[name]
            ]
            for b in (main, other)
        ]
        if main.marks[name] != other.marks[name]:
            said = [
                carried.describe_parts(b.marks[name], b.leaves[name])
                for b in (main, other)
            ]
            raise TypeError(_mismatch(name, "is", *said))
        for (type_a, shape_a), (type_b, shape_b) in zip(*kinds, strict=True):
            if type_a != type_b:
                raise TypeError(_mismatch(name, "has dtype", type_a, type_b))
            if shape_a != shape_b:
                advice = " XLA needs one shape: pad the smaller one."
                raise ValueError(
                    _mismatch(name, "has shape", shape_a, shape_b) + advice
                )


def _mismatch(name: str, verb: str, main: object, other: object) -> str:
    return (
        f"{carried.where()}{carried.told(name)} {verb} {main} in the main branch, but "
        f"{verb.removeprefix('has ')} {other} in the else branch."
    )


def if_exp(test: object, body: _Block, orelse: _Block) -> Any:
    """Returns one of two values, as a condition says; see `if_stmt`."""
    is_known, value = carried.find_known(test)
    if is_known:
        return body() if value else orelse()
    made: list[Any] = []

    def put(new: object) -> None:
        made[:] = [] if new is UNDEFINED else [new]

    symbol = Symbol("the conditional expression", lambda: made[0], put)
    blocks = (lambda: put(body()), lambda: put(orelse()))
    _Choice(test, blocks, [symbol], "o").run()
    return made[0]


def and_(*values: _Block) -> Any:
    """Returns ``a and b``; of arrays that are not known, as an array."""
    return _combine(values, jnp.logical_and, True)


def or_(*values: _Block) -> Any:
    """Returns ``a or b``; of arrays that are not known, as an array."""
    return _combine(values, jnp.logical_or, False)


def _combine(values: Sequence[_Block], fn: Callable[..., Any], goes_on: bool) -> Any:
    found: Any = goes_on
    unknown: Any = None
    for value in values:
        found = value()
        is_known, truth = carried.find_known(found)
        if not is_known:
            array = tensors.tensor(found).astype(bool)
            unknown = array if unknown is None else fn(unknown, array)
        elif bool(truth) is not goes_on:
            # What is known decides, whatever the others are.
            return found
    return found if unknown is None else unknown


def not_(value: object) -> Any:
    """Returns ``not a``."""
    is_known, truth = carried.find_known(value)
    return (
        not truth if is_known else jnp.logical_not(tensors.tensor(value).astype(bool))
    )


def assert_stmt(test: _Block, message: _Block) -> None:
    """Runs an `assert`; on a value that is not known, when the program runs."""
    found = test()
    is_known, truth = carried.find_known(found)
    if not is_known:
        checks.Assert(carried.as_condition(found, "`assert`"), [message()])
    elif not truth:
        raise AssertionError(message())
