"""`while` and `for` on any values: Python's loops, or loops of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.autograph import (
    branches,
    carried,
    growing_arrays,
    host_loops,
    jumps,
)
from unisono._src.autograph.carried import UNDEFINED, Symbol
from unisono._src.execution import host_inputs, program_checks
from unisono._src.foundation import ambient, errors
from unisono._src.ops import bodies, control_flow, making, tensor_array, tensors
from unisono._src.state import branch_frame, frames

_Block = Callable[[], Any]
_Body = Callable[[Any], Any]


@final
class Steps:
    """The numbers of `tf.range`, which need not be known.

    Args:
        start: the first number.
        delta: the distance between two numbers.
        count: how many there are: Python's number, or an array.
        numbers: all of them, if they are known.
    """

    def __init__(
        self, start: Any, delta: Any, count: Any, numbers: np.ndarray | None = None
    ) -> None:
        self.count = count
        self._start, self._delta, self._numbers = start, delta, numbers

    def at(self, turn: Any) -> jax.Array:
        """Returns a number of the range."""
        found: jax.Array = self._start + turn.astype(self._start.dtype) * self._delta
        return found

    def __iter__(self) -> Iterator[Any]:
        # Not rows of an array of JAX: it would compile something for each size.
        return map(np.asarray, [] if self._numbers is None else self._numbers)


def make_steps(args: Sequence[Any], kwargs: dict[str, Any]) -> Steps:
    """Returns the numbers of a call of `range`.

    Raises:
        InvalidArgumentError: the distance is known, and 0.
    """
    given = dict(zip(("start", "limit", "delta", "dtype"), args, strict=False))
    given.update(kwargs)
    start, limit = given.get("start", 0), given.get("limit")
    if limit is None:
        start, limit = 0, start
    bounds = (start, limit, given.get("delta", 1))
    known = [carried.find_known(x) for x in bounds]
    if all(is_known for is_known, _ in known):
        values: Any = [x for _, x in known]
        kind = given.get("dtype")
        numbers = making.range_on_host(values[0], values[1], values[2], kind)
        begin, _, distance = (np.asarray(x).astype(numbers.dtype) for x in values)
        return Steps(begin, distance, len(numbers), numbers)
    parts = [tensors.tensor(x) for x in bounds]
    dtype = given.get("dtype") or jnp.result_type(*parts)
    if known[2][0] and not np.asarray(known[2][1]).item():
        raise errors.InvalidArgumentError("Requires delta != 0 in range.")
    first, last, step = (bodies.strong_array(x.astype(dtype)) for x in parts)
    if jnp.issubdtype(first.dtype, jnp.floating):
        turns = jnp.ceil((last - first) / step)
    else:
        turns = -((first - last) // step)
    return Steps(first, step, jnp.maximum(turns, 0).astype(jnp.int32))


def is_in_body() -> bool:
    """Returns whether the running code is a loop of the program."""
    around = frames.enclosing(frames.frame())
    return any(getattr(f, "is_loop_body", False) for f in around)


def while_stmt(
    test: _Block,
    body: _Block,
    symbols: Sequence[Symbol],
    letters: str,
    options: Callable[[], dict[str, Any]],
) -> None:
    """Runs a `while`; in a program, as a loop of it once the condition is not known.

    Args:
        test: returns the condition.
        body: runs the statements of the loop.
        symbols: the names that it assigns.
        letters: how each of them is used later; see `rewriting`.
        options: returns those of `set_loop_options`.
    """
    found = test()
    if isinstance(found, jax.Array) and _is_on_host():
        host_loops.run(None, test, body, symbols, letters)
        return
    while True:
        is_known, value = carried.find_known(found)
        if not is_known:
            break
        if not value:
            return
        body()
        found = test()
    _StagedLoop(symbols, letters, lambda _: body(), options()).run(
        carried.as_condition(found, "`while`"), test
    )


def _is_on_host() -> bool:
    """Whether a function runs on the host, where only its steps are compiled."""
    return ambient.current().host is not None and not bodies.is_traced()


def for_stmt(
    items: object,
    test: _Block | None,
    body: _Body,
    symbols: Sequence[Symbol],
    letters: str,
    options: Callable[[], dict[str, Any]],
) -> None:
    """Runs a `for`; over arrays in a program, as a loop of it.

    Args:
        items: what it loops over.
        test: returns whether to go on, if there is a `break` or `return`.
        body: takes an item, and runs the statements of the loop.
        symbols: the names that it assigns.
        letters: how each of them is used later; see `rewriting`.
        options: returns those of `set_loop_options`.
    """
    if isinstance(items, Steps) and bodies.is_traced():
        most = options().get("maximum_iterations")
        _loop_over(items.count, items.at, test, body, symbols, letters, most)
    elif isinstance(items, Steps) and _is_on_host():
        host_loops.run(items, test, body, symbols, letters)
    elif (
        isinstance(items, jax.core.Tracer) and carried.is_unknown(items) and items.ndim
    ):
        array = tensors.tensor(items)
        rows: Any = array.shape[0]
        # In an exported program the size may be open.
        count = rows if isinstance(rows, int) else jnp.asarray(rows, jnp.int32)
        _loop_over(count, lambda i: array[i], test, body, symbols, letters)
    else:
        _loop_in_python(items, test, body, symbols, letters)


def _loop_in_python(
    items: Any,
    test: _Block | None,
    body: _Body,
    symbols: Sequence[Symbol],
    letters: str,
) -> None:
    for item in items:
        is_known, goes_on = carried.find_known(test()) if test else (True, True)
        if is_known and not goes_on:
            return
        if is_known:
            body(item)
        else:
            # The loop may have been left; a turn that is not taken changes nothing.
            branches.if_stmt(
                test() if test else True,
                lambda item=item: body(item),  # type: ignore[misc]
                lambda: None,
                symbols,
                letters,
            )


def _loop_over(
    count: object,
    item: Callable[[Any], Any],
    test: _Block | None,
    body: _Body,
    symbols: Sequence[Symbol],
    letters: str,
    most: int | None = None,
) -> None:
    """Runs a loop of the program over a number of items.

    Args:
        count: how many there are: Python's number, or an array.
        item: returns the one of a turn.
        test: returns whether to go on, or None.
        body: takes an item, and runs the statements of the loop.
        symbols: the names that it assigns.
        letters: how each of them is used later.
        most: the largest number of turns, as `set_loop_options` says.
    """
    if isinstance(count, int) and not count:
        return
    options = {"maximum_iterations": most}
    loop = _StagedLoop(symbols, letters, lambda turn: body(item(turn)), options)
    if isinstance(count, int):
        loop.most = count if most is None else min(count, most)
        loop.ran, loop.is_endless = loop.most > 0, test is None

    def more(turn: Any) -> Any:
        inside = True if isinstance(count, int) else turn < count
        return inside if test is None else branches.and_(lambda: inside, test)

    loop.run(more(jnp.zeros((), jnp.int32)), more, is_counted=True)


@final
class _StagedLoop:
    """A loop that becomes a part of the program.

    Args:
        symbols: the names that it assigns.
        letters: how each of them is used later.
        body: takes the number of the turn, and runs the statements.
        options: those of `set_loop_options`.

    Attributes:
        most: the largest number of turns, or None.
        ran: whether there certainly is a turn; None if that is not known.
        is_endless: whether nothing but `most` ends the loop.
    """

    def __init__(
        self,
        symbols: Sequence[Symbol],
        letters: str,
        body: _Body,
        options: dict[str, Any],
    ) -> None:
        self.most = options.get("maximum_iterations")
        self.ran: bool | None = None
        self.is_endless = False
        self._every, self._body = symbols, body
        used = list(zip(symbols, letters, strict=True))
        self._symbols = [s for s, x in used if x != "-"]
        self._letters = {s.name: x for s, x in used}
        self._before = [carried.read(s) for s in symbols]
        self._marks: list[Any] = []

    def run(
        self, goes_on: object, test: Callable[..., Any], is_counted: bool = False
    ) -> None:
        """Runs the loop, and sets the names to their last values.

        Args:
            goes_on: whether there is a first turn.
            test: returns whether there is another one; gets its number if `is_counted`.
            is_counted: whether turns are counted.
        """
        start = self._open_arrays(self._first_values(goes_on))
        parts = [carried.split(x) for x in start]
        self._marks = [marks for marks, _ in parts]
        sizes = [len(leaves) for _, leaves in parts]
        arrays = [x for _, leaves in parts for x in leaves]

        def put(leaves: Sequence[Any]) -> None:
            carried.write(self._every, self._before)
            given = iter(leaves)
            for symbol, marks in zip(self._symbols, self._marks, strict=True):
                carried.write([symbol], [carried.join(marks, given)])

        def step(turn: Any, answer: Any, *leaves: Any) -> list[Any]:
            _mark_body()
            put(leaves)
            self._body(turn)
            made = self._collect(sizes, leaves)
            more = test(turn + 1) if is_counted else test()
            return [turn + 1, _as_flag(more), *made]

        first = [jnp.zeros((), jnp.int32), _as_flag(goes_on), *arrays]
        try:
            _, _, *out = control_flow.while_loop(
                lambda turn, answer, *_: True if self.is_endless else answer,
                step,
                first,
                maximum_iterations=self.most,
            )
        except branch_frame.CreatedInBody:
            # On the host the first step creates variables, and the others use them.
            carried.write(self._every, self._before)
            raise host_inputs.NeedsHost from None
        except BaseException:
            # Attributes must not keep what a trace that is given up has made.
            carried.write(self._every, self._before)
            raise
        put(out)
        for symbol in self._symbols:
            value = carried.read(symbol)
            if growing_arrays.is_growing(value):
                carried.write([symbol], [tensor_array.close_after(value)])

    def _open_arrays(self, start: list[Any]) -> list[Any]:
        """Returns the first values, with TensorArrays that grow in their last sizes.

        Raises:
            NeedsHost: these are not known.
        """
        places = [i for i, x in enumerate(start) if growing_arrays.has_growing(x)]
        if not places:
            return start
        is_plain = all(growing_arrays.is_growing(start[i]) for i in places)
        is_noted = is_plain and any(tensor_array.find_notes(start[i]) for i in places)
        if not is_plain or is_noted or not self.is_endless or self.most is None:
            raise host_inputs.NeedsHost
        others = [carried.split(x) for i, x in enumerate(start) if i not in places]
        rest = [s for i, s in enumerate(self._symbols) if i not in places]
        mine = [self._symbols[i] for i in places]

        def turn(number: Any, *leaves: Any) -> Any:
            _mark_body()
            carried.write(self._every, self._before)
            given = iter(leaves)
            carried.write(rest, [carried.join(marks, given) for marks, _ in others])
            noted = [tensor_array.record(start[i], n) for n, i in enumerate(places)]
            carried.write(mine, noted)
            self._body(number)
            after = [x for s in rest for x in carried.split(carried.read(s))[1]]
            found: list[Any] = [tensor_array.find_notes(carried.read(s)) for s in mine]
            if any(x is None or x[0] != n for n, x in enumerate(found)):
                raise host_inputs.NeedsHost
            return after, [x[1] for x in found]

        leaves = [x for _, parts in others for x in parts]
        try:
            sizes = growing_arrays.find_sizes(turn, leaves, self.most)
        except branch_frame.CreatedInBody:
            raise host_inputs.NeedsHost from None
        finally:
            carried.write(self._every, self._before)
        if sizes is None:
            raise host_inputs.NeedsHost
        opened = list(start)
        for i, size in zip(places, sizes, strict=True):
            if size is not None:
                opened[i] = tensor_array.open_for(start[i], *size)
        return opened

    def _first_values(self, goes_on: object) -> list[Any]:
        """Returns the values of names before the loop; zeros if they get one in it."""
        for symbol in self._symbols:
            value = carried.read(symbol)
            if self._letters[symbol.name] == "i" and symbol.name.isidentifier():
                carried.write([symbol], [carried.as_arrays(value)])
        found = [carried.read(s) for s in self._symbols]
        missing = [
            s for s, x in zip(self._symbols, found, strict=True) if x is UNDEFINED
        ]
        if not missing:
            return found
        shapes = self._preview(missing)
        pairs = list(zip(self._symbols, found, strict=True))
        pairs = [(s, x) for s, x in pairs if x is not UNDEFINED or s.name in shapes]
        self._symbols = [s for s, _ in pairs]
        needed = [n for n in shapes if n != jumps.RESULT and self._letters[n] != "c"]
        if needed and self.ran is None:
            _require_turn(goes_on, needed[0])
        elif needed and not self.ran:
            raise _no_turn_error(needed[0])
        values = []
        for symbol, value in pairs:
            if value is UNDEFINED:
                marks, leaves = shapes[symbol.name]
                zeros = iter([jnp.zeros(a.shape, a.dtype) for a in leaves])
                value = carried.join(marks, zeros)
            values.append(value)
        return values

    def _preview(self, missing: Sequence[Symbol]) -> dict[str, Any]:
        """Returns by name what a turn makes of names that have no value before it."""
        marks: dict[str, Any] = {}
        counts: list[int] = []
        # As in any turn, the values of the others are not known. If they were, a
        # branch that only a later turn takes would be left out.
        known = [(s, carried.read(s)) for s in self._symbols if s not in missing]
        known = [(s, x) for s, x in known if not growing_arrays.has_growing(x)]
        given = [carried.split(x) for _, x in known]

        def turn(number: Any, *values: Any) -> list[Any]:
            _mark_body()
            parts = iter(values)
            old = [carried.join(marks, parts) for marks, _ in given]
            carried.write([s for s, _ in known], old)
            self._body(number)
            leaves: list[Any] = []
            for symbol in missing:
                value = carried.read(symbol)
                if value is not UNDEFINED:
                    marks[symbol.name], found = carried.split(value)
                    counts.append(len(found))
                    leaves += found
            return leaves

        try:
            first = [jnp.zeros((), jnp.int32), *(x for _, xs in given for x in xs)]
            body = bodies.preview(turn, first)
        except branch_frame.CreatedInBody:
            raise host_inputs.NeedsHost from None
        finally:
            carried.write(self._every, self._before)
        every = iter(body.rebuild(body.avals()))
        parts = [[next(every) for _ in range(count)] for count in counts]
        return dict(zip(marks, zip(marks.values(), parts, strict=True), strict=True))

    def _collect(self, sizes: Sequence[int], before: Sequence[Any]) -> list[Any]:
        """Returns the arrays of the names after a turn, once they are of one kind."""
        made: list[Any] = []
        given = iter(before)
        for symbol, marks, size in zip(self._symbols, self._marks, sizes, strict=True):
            old = [next(given) for _ in range(size)]
            after, new = carried.split(carried.read(symbol))
            if after != marks:
                after, new = carried.split(carried.as_arrays(carried.read(symbol)))
            if after != marks:
                raise TypeError(
                    _change(
                        symbol.name,
                        carried.describe_parts(marks, old),
                        carried.describe_parts(after, new),
                    )
                )
            for a, b in zip(old, new, strict=True):
                _check_kept(symbol.name, a, b)
            made += new
        return made


def _check_kept(name: str, old: Any, new: Any) -> None:
    """Raises unless a value keeps its type and shape in a turn."""
    if isinstance(old, bodies.LoopCarried):
        return
    if old.dtype != new.dtype:
        raise TypeError(_change(name, f"dtype {old.dtype}", f"dtype {new.dtype}"))
    if old.shape != new.shape:
        raise ValueError(
            _change(name, f"shape {old.shape}", f"shape {new.shape}")
            + " XLA needs one shape for all turns: write into a part of an array of "
            "the largest shape, or into a TensorArray."
        )


def _change(name: str, old: str, new: str) -> str:
    return (
        f"{carried.where()}{carried.told(name)} has {old} before the loop, but {new} "
        "after one iteration."
    )


def _as_flag(x: object) -> jax.Array:
    return bodies.strong_array(carried.as_condition(x, "a loop"))


def _mark_body() -> None:
    """Notes in the frame of a body that it is one of a loop."""
    frame = frames.frame()
    if isinstance(frame, branch_frame.BranchFrame):
        frame.is_loop_body = True


def _require_turn(goes_on: object, name: str) -> None:
    program_checks.require("autograph", goes_on, lambda: _no_turn_error(name))


def _no_turn_error(name: str) -> Exception:
    return errors.InvalidArgumentError(
        f"{carried.where()}{carried.told(name)} is read after a loop that gives it its "
        "first value, but the loop had no turn. Give it a value before the loop."
    )
