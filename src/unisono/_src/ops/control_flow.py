"""`cond`, `case`, `switch_case` and `while_loop`: choices and loops on arrays.

Eagerly they are Python's `if` and `while`, as in TensorFlow. In a compiled `function`
they become a part of the program; variables may be assigned in them there, too. If they
take elements of an iterator, the function runs on the host (`execution/host_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
from jax.tree_util import PyTreeDef

from unisono._src.execution import program_checks
from unisono._src.foundation import ambient, errors, nest
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import bodies, tensors
from unisono._src.ops.host import eager_values
from unisono._src.ops.tensors import TensorLike
from unisono._src.state import frames

__all__ = ["case", "cond", "switch_case", "while_loop"]

_R = TypeVar("_R")
_Vars = TypeVar("_Vars", bound=Sequence[Any])


@everyday_name(
    "cond",
    difference=(
        "In a compiled function the branches must also return the same shapes."
    ),
)
def cond(
    pred: TensorLike,
    true_fn: Callable[[], _R] | None = None,
    false_fn: Callable[[], _R] | None = None,
    name: str | None = None,
) -> _R:
    """Returns the result of one of two functions, depending on a condition.

    If the value of the condition is known, only the selected function is called. In a
    compiled `function` both are traced, and the program runs one of them. Variables
    that only the other one assigns keep their values. If one of them takes an element
    of an iterator, the compiled `function` runs on the host instead, and the element is
    taken only if that function is selected.

    Args:
        pred: a scalar.
        true_fn: the function to call if `pred` is true.
        false_fn: the function to call if `pred` is false.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: `true_fn` or `false_fn` is not callable; or, in a compiled
            `function`, they return different structures, shapes or dtypes.

    >>> import unisono
    >>> import jax.numpy as jnp
    >>> @unisono.function
    ... def halve(x):
    ...     return unisono.cond(x % 2 == 0, lambda: x // 2, lambda: x)
    >>> int(halve(jnp.asarray(6))), int(halve(jnp.asarray(7)))
    (3, 7)
    """
    if not callable(true_fn):
        raise TypeError("'true_fn' must be callable.")
    if not callable(false_fn):
        raise TypeError("'false_fn' must be callable.")
    # Also in a program: a condition that depends on none of its inputs is decided while
    # it is traced, and the other function is not even called.
    known = _find_known_value(pred)
    if known is not None:
        return true_fn() if bool(known) else false_fn()
    condition = jnp.reshape(tensors.tensor(pred), ()).astype(bool)
    # In this order, because the condition becomes the index of a branch: 0 is false.
    found = [bodies.trace(f, ()) for f in (false_fn, true_fn)]
    _check_alike("cond", ("false_fn", "true_fn"), found)
    result: _R = bodies.switch(condition, found)
    return result


def _find_known_value(x: Any) -> Any:
    """Returns a value that is known now, or None."""
    return bodies.find_known_value(tensors.tensor(x) if tensors.is_array(x) else x)


def _check_alike(
    name: str, labels: Sequence[str], found: Sequence[bodies.Body]
) -> None:
    """Raises `TypeError` unless branches return the same structures of arrays."""
    # JAX would refuse unlike branches, too, but in its own words.
    told = [(b.shape, [(a.shape, a.dtype) for a in b.avals()]) for b in found]
    for label, one in zip(labels[1:], told[1:], strict=True):
        if one != told[0]:
            first = _tell(found[0])
            other = _tell(found[told.index(one)])
            raise TypeError(
                f"{labels[0]} and {label} arguments to {name} must have the same "
                "number, type, and overall structure of return values; in a compiled "
                f"function also the same shapes. {labels[0]} returns {first}, and "
                f"{label} returns {other}."
            )


def _tell(body: bodies.Body) -> str:
    shapes = iter([f"{a.dtype}{list(a.shape)}" for a in body.avals()])

    def tell(mark: Any) -> Any:
        if isinstance(mark, PyTreeDef):
            inside = ", ".join(next(shapes) for _ in range(mark.num_leaves))
            return f"TensorArray({inside or 'not written'})"
        return None if mark is None else next(shapes)

    return str(nest.map_structure(tell, body.shape)).replace("'", "")


@everyday_name("case", difference="`exclusive` is not checked.")
def case(
    pred_fn_pairs: Sequence[tuple[object, Callable[[], _R]]]
    | Mapping[Any, Callable[[], _R]],
    default: Callable[[], _R] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> _R:
    """Returns the result of the first function whose condition is true.

    Args:
        pred_fn_pairs: pairs of a scalar array and a function.
        default: the function to call if no condition is true.
        exclusive: accepted for compatibility with TensorFlow and ignored.
        strict: accepted for compatibility with TensorFlow and ignored.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: no condition is true, and there is no `default`.
        TypeError: a condition is not an array, or a function is not callable.

    >>> import jax.numpy as jnp
    >>> x = jnp.asarray(3)
    >>> case([(x < 2, lambda: "low"), (x < 5, lambda: "middle")], lambda: "high")
    'middle'
    """
    given = pred_fn_pairs.items() if isinstance(pred_fn_pairs, Mapping) else None
    pairs = list(pred_fn_pairs if given is None else given)
    for pred, fn in pairs:
        if not eager_values.is_tensor(pred):
            raise TypeError(f"pred must be a Tensor, got: {pred}")
        _check_callable(fn)
    if default is not None:
        _check_callable(default)
    # Only if every condition is known can Python choose: an unknown one may come first.
    known = [_find_known_value(pred) for pred, _ in pairs]
    if all(x is not None for x in known):
        chosen = next((f for x, (_, f) in zip(known, pairs) if bool(x)), default)  # noqa: B905
        if chosen is None:
            raise _no_case_error()
        result: _R = chosen()
        return result
    # `argmax` gives the first true condition.
    flags = jnp.stack([jnp.asarray(tensors.tensor(p), bool) for p, _ in pairs])
    branches = [fn for _, fn in pairs]
    if default is None:
        program_checks.require("case", flags.any(), _no_case_error)
        index = jnp.argmax(flags)
    else:
        branches.append(default)
        index = jnp.where(flags.any(), jnp.argmax(flags), len(pairs))
    chosen_one: _R = _switch("case", index, branches)
    return chosen_one


def _no_case_error() -> Exception:
    return errors.InvalidArgumentError(
        "None of conditions evaluated as True, and case has no default."
    )


def _check_callable(fn: Callable[..., object]) -> None:
    if not callable(fn):
        raise TypeError(f"fn must be callable, got: {fn}")


def _switch(name: str, index: Any, branches: Sequence[Callable[[], _R]]) -> _R:
    found = [bodies.trace(f, ()) for f in branches]
    _check_alike(name, [f"branch {i}" for i in range(len(found))], found)
    result: _R = bodies.switch(index, found)
    return result


@everyday_name("switch_case")
def switch_case(
    branch_index: TensorLike,
    branch_fns: Sequence[Any] | Mapping[int, Callable[[], _R]],
    default: Callable[[], _R] | None = None,
    name: str = "switch_case",
) -> _R:
    """Returns the result of the function that an index selects.

    Args:
        branch_index: the index of a function, a scalar integer.
        branch_fns: functions, or pairs of an index and a function. Indices start at 0.
        default: the function to call for other indices; if not given, the last one of
            `branch_fns`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: a function is not callable, or `branch_index` is not an integer.
        ValueError: there are no functions, or their indices are not 0, 1, 2 and so on.

    >>> import jax.numpy as jnp
    >>> switch_case(jnp.asarray(1), [lambda: "a", lambda: "b"], default=lambda: "?")
    'b'
    """
    branches = _branches(branch_fns)
    for fn in branches:
        _check_callable(fn)
    index = tensors.tensor(branch_index)
    if not jnp.issubdtype(index.dtype, jnp.integer):
        raise TypeError(f"'branch_index' must be an integer Tensor, got {index.dtype}")
    last = len(branches) - 1
    if default is not None:
        branches, last = [*branches, default], last + 1
    known = _find_known_value(index)
    if known is not None:
        number = int(known)
        result: _R = branches[number if 0 <= number <= last else last]()
        return result
    # `jax.lax.switch` would clamp a negative index to the first branch.
    inside = (index >= 0) & (index <= last)
    result = _switch("switch_case", jnp.where(inside, index, last), branches)
    return result


def _branches(given: Any) -> list[Any]:
    """Returns the functions of `switch_case` in the order of their indices."""
    pairs = given.items() if isinstance(given, Mapping) else given
    found = list(pairs)
    if not found:
        raise ValueError("switch_case needs at least one function.")
    if callable(found[0]):
        return found
    by_number = dict(found)
    if sorted(by_number) != list(range(len(by_number))):
        raise ValueError(
            f"branch indices must form contiguous range of [0 to {len(by_number)}) but "
            f"found {sorted(by_number)}"
        )
    return [by_number[i] for i in range(len(by_number))]


@everyday_name(
    "while_loop",
    difference=(
        "In a compiled function the loop variables keep their shapes and types, and a "
        "gradient needs `maximum_iterations`."
    ),
)
def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: _Vars,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: TensorLike | None = None,
    name: str | None = None,
) -> _Vars:
    """Returns the final values of the variables of a loop.

    In a compiled `function` the loop variables keep their shapes and dtypes. Gradients
    need `maximum_iterations` as a Python number, and the loop then always takes the
    time of that many iterations. A `function` whose loop takes elements of an iterator
    runs on the host.

    Args:
        cond: takes the loop variables, and returns whether the loop continues.
        body: takes the loop variables, and returns their next values.
        loop_vars: the initial values, a list or tuple of arrays and structures of them.
        shape_invariants: accepted for compatibility with TensorFlow and ignored.
        parallel_iterations: accepted for compatibility with TensorFlow and ignored.
        back_prop: whether you need gradients.
        swap_memory: accepted for compatibility with TensorFlow and ignored.
        maximum_iterations: the largest number of iterations, or None for no limit.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: `cond` or `body` is not callable.
        ValueError: `loop_vars` is empty, or a structure, shape or dtype changes.

    >>> import jax.numpy as jnp
    >>> i, total = while_loop(
    ...     lambda i, total: i < 4, lambda i, total: (i + 1, total + i), (0, 0)
    ... )
    >>> int(i), int(total)
    (4, 6)
    """
    if not callable(cond):
        raise TypeError("'cond' must be callable.")
    if not callable(body):
        raise TypeError("'body' must be callable.")
    if not nest.is_nested(loop_vars) or not len(loop_vars):
        raise ValueError("'loop_vars' must be provided.")

    def step(values: Any) -> Any:
        made = body(*values)
        # The body of a loop over one value may return it without a list, as in
        # TensorFlow.
        if len(values) == 1 and not isinstance(made, (list, tuple)):
            made = (made,)
        return _restructure(values, made)

    if not bodies.is_traced():
        ended: _Vars = _loop_eagerly(cond, step, loop_vars, maximum_iterations)
        return ended
    ended = _loop_traced(cond, step, loop_vars, maximum_iterations, back_prop)
    return ended


def _restructure(values: Any, made: Any) -> Any:
    """Returns new values in the structure of the old ones.

    Raises:
        ValueError: they have another structure.
    """
    old, new = list(nest.leaves(list(values))), list(nest.leaves(list(made)))
    if len(old) != len(new):
        raise ValueError(
            "The two structures don't have the same nested structure: the body of "
            f"while_loop got {len(old)} values and returned {len(new)}."
        )
    given = iter(new)
    return nest.map_structure(lambda _: next(given), values)


def _loop_eagerly(cond: Any, step: Any, values: Any, most: Any) -> Any:
    left = None if most is None else int(tensors.tensor(most))
    while bool(cond(*values)):
        if left is not None:
            if left <= 0:
                break
            left -= 1
        values = step(values)
    return nest.map_structure(_finish, values)


def _finish(x: Any) -> Any:
    return x if isinstance(x, bodies.LoopCarried) else eager_values.tensor(x)


def _loop_traced(
    cond: Any, step: Any, loop_vars: Any, most: Any, back_prop: bool
) -> Any:
    carry, marks = bodies.flatten(_fill_empty(step, loop_vars))

    def rebuild(flat: Sequence[Any]) -> Any:
        return bodies.unflatten(marks, flat)

    def goes_on(*flat: Any) -> Any:
        return jnp.reshape(tensors.tensor(cond(*rebuild(flat))), ()).astype(bool)

    def advance(*flat: Any) -> list[Any]:
        made, after = bodies.flatten(step(rebuild(flat)))
        if after != marks:
            raise ValueError(
                "A TensorArray leaves the body of while_loop in another form than it "
                "enters it. In a compiled function it must keep its size, and its "
                f"entries their shapes: {marks} becomes {after}."
            )
        return made

    if not bodies.preview(goes_on, carry).written:
        return rebuild(_run(goes_on, advance, carry, most, back_prop))
    parts = _evaluate_before(goes_on, advance, carry)
    return rebuild(_run(*parts, most, back_prop)[1:])


def _run(
    goes_on: Any, advance: Any, carry: list[Any], most: Any, back_prop: bool
) -> list[Any]:
    """Returns the last values of a loop in a program, as a list of arrays."""
    # Three kinds of loop: without a limit, XLA's own; with a limit and gradients around
    # it, a scan over that many steps; with a limit alone, XLA's with a counter.
    # JAX has no reverse-mode gradients of `while_loop`, because the number of steps is
    # not known. It has those of a scan.
    if most is None:
        return bodies.run_loop(goes_on, advance, carry)
    # Only where somebody may ask for a gradient: the scan always takes all its steps.
    is_followed = (
        ambient.current().tape is not None or not bodies.is_outside_gradients()
    )
    if isinstance(most, int) and back_prop and is_followed:
        return _loop_for_gradients(goes_on, advance, carry, most)
    # The count of steps is one more value of the loop.
    limit = bodies.strong_array(jnp.asarray(tensors.tensor(most), jnp.int32))

    def counted(count: Any, *flat: Any) -> list[Any]:
        return [count + 1, *advance(*flat)]

    def is_below(count: Any, *flat: Any) -> Any:
        return (count < limit) & goes_on(*flat)

    start = [jnp.zeros((), jnp.int32), *carry]
    return bodies.run_loop(is_below, counted, start)[1:]


def _evaluate_before(
    goes_on: Any, advance: Any, carry: list[Any]
) -> tuple[Any, Any, list[Any]]:
    """Returns the parts of a loop whose condition was evaluated a round before.

    XLA's condition cannot change anything, so one that assigns variables or draws
    numbers becomes a part of the body. Its value is the first one of the loop.
    """
    program = frames.outermost()
    before = program.seeded
    first = goes_on(*carry)

    def step(_: Any, *flat: Any) -> list[Any]:
        made = advance(*flat)
        # The random operations are those of the first evaluation, with the same states.
        after, program.seeded = program.seeded, before
        answer = goes_on(*made)
        program.seeded = after
        return [answer, *made]

    return lambda answer, *_: answer, step, [first, *carry]


def _fill_empty(step: Any, loop_vars: Any) -> Any:
    """Returns the first values of a loop, in which no object is without arrays.

    A TensorArray that is not written yet does not know the shape of its entries. What
    the body makes of it tells.
    """
    flat, marks = bodies.flatten(loop_vars)
    empty = [isinstance(m, PyTreeDef) and not m.num_leaves for m in nest.leaves(marks)]
    if not any(empty):
        return loop_vars
    body = bodies.preview(lambda *flat: step(bodies.unflatten(marks, flat)), flat)
    made = nest.leaves(body.rebuild(body.avals()))
    filled = iter(
        old.fill_like(new) if is_empty else old
        for old, new, is_empty in zip(nest.leaves(loop_vars), made, empty, strict=True)
    )
    return nest.map_structure(lambda _: next(filled), loop_vars)


def _loop_for_gradients(goes_on: Any, advance: Any, carry: Any, most: int) -> list[Any]:
    """Returns the end of a loop that reverse-mode gradients can go through.

    It always takes `most` steps, and those after the end of the loop change nothing.
    """

    def step(*flat: Any) -> list[Any]:
        # The `cond` of this module, which is a program's
        # branch: gradients go through it.
        made: list[Any] = cond(
            goes_on(*flat), lambda: advance(*flat), lambda: list(flat)
        )
        return made

    found, _, _ = bodies.run_scan(step, carry, [], most)
    return found
