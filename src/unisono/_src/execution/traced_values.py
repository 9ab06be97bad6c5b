"""Errors for Python code that needs the value of an array while a program is traced.

AutoGraph converts `if`, `while`, `for` and `assert` on arrays. Where it cannot, because
there is no source or it is switched off, such a line raises one kind of error, with the
line and what to write instead of it. Nothing is looked up unless a line has failed.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import re
from collections.abc import Iterator
from types import TracebackType
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors, wide_numbers
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.state import frames

_VALUE_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
# Frames of these packages are not the user's.
_PACKAGES = {__name__.partition(".")[0], "jax", "keras", "flax", "numpy", "optax"}
_REPLICA_ID = (
    "`replica_id_in_sync_group` is such a value, because one program serves all "
    "replicas; outside unisono.function strategy.run gives each replica its number."
)
# Where a value was made that has left its branch or loop, in JAX' words.
_LEAK = re.compile(r"value was created on line (\S+:\d+):\d+")
# How JAX begins to say that a loop has no gradient.
_NO_REVERSE = "Reverse-mode differentiation does not work for lax.while_loop"
_NO_LIMIT = (
    "A gradient goes through a loop whose largest number of turns is not known, and "
    "XLA must know how much to keep. In a `while`, or a `for` over tf.range of an "
    "array, write unisono.autograph.experimental.set_loop_options(maximum_iterations="
    "...) as the first statement; give the bound of tf.range as a Python number; or "
    "give while_loop its maximum_iterations."
)
# How JAX tells that it was made by a replica function.
_OF_REPLICAS = "traced for shard_map"
_LEFT_REPLICA = (
    "A value that a replica function has made is used outside of it. A list, a "
    "dictionary or an object has carried it out: return it from the function that "
    "strategy.run calls, and combine the values of the replicas with strategy.reduce."
)
# How JAX begins to say that the bounds of a slice are computed, before 0.12 and since.
_NO_SIZE = (
    "Slice entries must be static integers",
    "Array slice indices must have static start/stop/step",
)
_SLICES = (
    "The bounds of a slice are computed, and XLA must know its size. For a slice of a "
    "known size write unisono.slice(x, [start], [size]); else select elements with "
    "unisono.where and a mask of unisono.range."
)
_Test = ast.If | ast.While | ast.Assert | ast.IfExp
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "none_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}


class OperatorNotAllowedInGraphError(jax.errors.ConcretizationTypeError):
    """Python code needs a value that is only known when the compiled step runs.

    >>> import jax.numpy as jnp
    >>> import unisono
    >>> def clip(x):
    ...     if x > 1:
    ...         x = x / 2
    ...     return x
    >>> try:
    ...     unisono.function(clip, autograph=False)(jnp.asarray(3.0))
    ... except TypeError as error:
    ...     print(error)
    <doctest ...>, line 2, in clip
        if x > 1:
    Python needs the value of `x > 1` here, and in a unisono.function it is ...
    x = unisono.cond(x > 1, lambda: x / 2, lambda: x)
    ...
    """

    def __init__(self, message: str) -> None:
        # Not by `super`: JAX's constructor asks for a tracer and writes its own text.
        TypeError.__init__(self, message)


@contextlib.contextmanager
def explain() -> Iterator[None]:
    """Explain in the user's terms an error of JAX about a traced value."""
    try:
        yield
    except OperatorNotAllowedInGraphError:
        # Explained already, by a block inside this one.
        raise
    except _VALUE_ERRORS as error:
        raise OperatorNotAllowedInGraphError(_message(error)) from error
    except jax.errors.UnexpectedTracerError as error:
        raise leak_error(error, frames.outermost().is_converted) from error
    except IndexError as error:
        if not str(error).startswith(_NO_SIZE):
            raise
        raise IndexError(f"{_where(error)}{_SLICES}") from error
    except OverflowError as error:
        raise _number_error(error) from None
    except ValueError as error:
        if not str(error).startswith(_NO_REVERSE):
            raise
        raise ValueError(_NO_LIMIT) from error


def check(closed: ClosedProgram, is_converted: bool) -> ClosedProgram:
    """Return a program; raise if it has a value of a branch or loop that has ended.

    Args:
        closed: the program.
        is_converted: whether AutoGraph has made it.
    """
    for value in closed.consts:
        if isinstance(value, jax.core.Tracer):
            try:
                jnp.copy(value)  # JAX says where it was made.
            except jax.errors.UnexpectedTracerError as error:
                raise leak_error(error, is_converted) from error
    return closed


def leak_error(
    error: jax.errors.UnexpectedTracerError, is_converted: bool
) -> Exception:
    """Return the error for a value that was used outside its branch or loop.

    Args:
        error: what JAX said.
        is_converted: whether AutoGraph has made the branch or loop.
    """
    if _OF_REPLICAS in str(error):
        return TypeError(f"{_where(error)}{_LEFT_REPLICA}")
    if not is_converted:
        return error
    found = _LEAK.search(str(error))
    return TypeError(
        f"The value made at {found.group(1) if found else 'some line'} is used outside "
        "the `if`, `while` or `for` that makes it, where the compiled program does not "
        "have it. A list, a dictionary or an object has carried it out: assign it to "
        "a name that has a value before the loop, or write it into a TensorArray."
    )


def _number_error(error: OverflowError) -> OverflowError:
    """Return the error that tells which number of the host JAX has no type for."""
    # JAX hides the error that has the number behind one about its own code.
    first, advice = error, wide_numbers.ADVICE
    while advice not in str(first) and isinstance(first.__context__, OverflowError):
        first = first.__context__
    is_bare = str(first).startswith("Python int") and advice not in str(first)
    return OverflowError(f"{first}. {advice}") if is_bare else first


def _message(error: Exception) -> str:
    """Return what is wrong with the user's line, and what to write."""
    found = _find_line(error.__traceback__)
    if found is None:
        reason = f"{_reason_text('an array')} {_advice(None, None)}"
        return f"{reason}\nJAX said: {_first_line(error)}"
    where, source, node, outer = found
    advice = _advice(node, outer)
    if "replica_id" in source:
        advice += f"\n{_REPLICA_ID}"
    reason = _reason_text(_subject_text(node, outer))
    return f"{where}\n    {source}\n{reason} {advice}\nJAX said: {_first_line(error)}"


def _where(error: Exception) -> str:
    """Return the user's line, above what is said about it; "" if it is not known."""
    found = _find_line(error.__traceback__)
    return f"{found[0]}\n    {found[1]}\n" if found else ""


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).splitlines()[0]


def _reason_text(subject: str) -> str:
    """Return a sentence on why the value of an expression is not known."""
    return (
        f"Python needs the value of {subject} here, and in a unisono.function it is "
        "only known when the compiled step runs."
    )


# Finding the line.


def _find_line(
    trace: TracebackType | None,
) -> tuple[str, str, ast.AST, list[Any]] | None:
    """Return the user's line: where it is, its text, its node, and the nodes around.

    Returns:
        None if the line is not known.
    """
    # The innermost frame of the user's: below it are JAX's and ours.
    last = None
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _PACKAGES or _is_example(trace):
            last = trace
        trace = trace.tb_next
    if last is None:
        return None
    code, line = last.tb_frame.f_code, last.tb_lineno
    lines = linecache.getlines(code.co_filename, last.tb_frame.f_globals)
    if not 0 < line <= len(lines):
        return None
    where = f"{_shorten_path(code.co_filename)}, line {line}, in {code.co_name}"
    nodes = _nodes_at(lines, _position(last))
    if not nodes:
        return None
    return where, lines[line - 1].strip(), nodes[-1], nodes[:-1]


def _is_example(trace: TracebackType) -> bool:
    """Whether the frame is an example in a docstring, which has a module's name."""
    return trace.tb_frame.f_code.co_filename.startswith("<doctest")


def _shorten_path(path: str) -> str:
    """Return a path below the current directory without it."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


def _position(trace: TracebackType) -> tuple[int, int, int, int]:
    """Return the first and last line and column of the expression that failed."""
    every = list(trace.tb_frame.f_code.co_positions())
    # One entry for each instruction of two bytes; `tb_lasti` counts bytes.
    line, end, column, stop = every[trace.tb_lasti // 2]
    start = line or trace.tb_lineno
    return start, column or 0, end or start, stop or column or 0


def _nodes_at(lines: list[str], position: tuple[int, int, int, int]) -> list[Any]:
    """Return the nodes of the source that contain a position, outermost first."""
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return []
    first, last = (position[0], position[1]), (position[2], position[3])
    found: list[Any] = []
    nodes: list[Any] = list(ast.iter_child_nodes(tree))
    while nodes:
        # A node without a place, such as the arguments of a function, is looked into.
        node = nodes.pop(0)
        if not hasattr(node, "lineno"):
            nodes = [*ast.iter_child_nodes(node), *nodes]
            continue
        begins = (node.lineno, node.col_offset) <= first
        ends = last <= (node.end_lineno or 0, node.end_col_offset or 0)
        if begins and ends:
            found.append(node)
            nodes = list(ast.iter_child_nodes(node))
    return found


# Telling what to write.


def _is_test(statement: _Test, node: ast.AST) -> bool:
    """Whether a node is in the condition of a statement."""
    return any(n is node for n in ast.walk(statement.test))


def _statement(node: ast.AST, outer: list[Any]) -> ast.AST | None:
    """Return the statement or expression that needs the value."""
    for around in [node, *reversed(outer)]:
        if isinstance(around, ast.Call) and _find_python_name(around):
            loop = next((n for n in reversed(outer) if isinstance(n, ast.For)), None)
            is_loop = loop is not None and any(n is around for n in ast.walk(loop.iter))
            return loop if is_loop else around
        if isinstance(around, (ast.If, ast.While, ast.Assert, ast.IfExp)):
            return around if around is node or _is_test(around, node) else None
        if isinstance(around, ast.For):
            return around if any(n is node for n in ast.walk(around.iter)) else None
    return None


def _find_python_name(call: ast.Call) -> str:
    """Return the name of a function of Python's that needs a number, or ""."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name if name in ("bool", "float", "int", "range", "complex", "len") else ""


def _subject_text(node: ast.AST, outer: list[Any]) -> str:
    """Return the expression whose value Python needs."""
    found = _statement(node, outer)
    if isinstance(found, (ast.If, ast.While, ast.Assert, ast.IfExp)):
        return f"`{ast.unparse(found.test)}`"
    if isinstance(found, ast.Call) and found.args:
        return f"`{ast.unparse(found.args[-1])}`"
    if isinstance(found, ast.For):
        return f"`{ast.unparse(found.iter)}`"
    return f"`{ast.unparse(node)}`"


def _advice(node: ast.AST | None, outer: list[Any] | None) -> str:
    """Return what to write instead of a line."""
    found = None if node is None else _statement(node, outer or [])
    if isinstance(found, ast.If):
        return _advise_if(found, outer or [])
    if isinstance(found, ast.IfExp):
        a, b = ast.unparse(found.body), ast.unparse(found.orelse)
        test = _condition(found.test)
        return (
            f"Write:\n    {_cond_text(test, a, b)}\nor:\n    {_where_text(test, a, b)}"
        )
    if isinstance(found, ast.While):
        return _advise_while(found)
    if isinstance(found, ast.Assert):
        return _advise_assert(found)
    if isinstance(found, ast.For):
        return _advise_loop(found)
    if isinstance(found, ast.Call):
        return _advise_call(found)
    return (
        "Use functions of unisono and jax.numpy instead of NumPy's and Python's, "
        "unisono.cond(...) or unisono.where(condition, a, b) for choices, and "
        "unisono.while_loop(...) for loops; or pass the Python number as an argument. "
        f"{_REPLICA_ID}"
    )


def _cond_text(test: str, a: str, b: str) -> str:
    return f"unisono.cond({test}, lambda: {a}, lambda: {b})"


def _where_text(test: str, a: str, b: str) -> str:
    return f"unisono.where({test}, {a}, {b})"


def _values_of(body: list[Any]) -> dict[str, str] | None:
    """Return the values that statements assign, by name; None for other statements."""
    found: dict[str, str] = {}
    for statement in body:
        if isinstance(statement, ast.Return):
            value = statement.value
            found["return"] = "None" if value is None else ast.unparse(value)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            found[ast.unparse(statement.targets[0])] = ast.unparse(statement.value)
        elif isinstance(statement, ast.AugAssign):
            step = ast.BinOp(statement.target, statement.op, statement.value)
            found[ast.unparse(statement.target)] = ast.unparse(step)
        elif not isinstance(statement, ast.Pass):
            return None
    return found


@final
class _Logic(ast.NodeTransformer):
    """Writes `and`, `or`, `not` and chains of comparisons as functions of arrays."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Return ``a and b`` as a call."""
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return _join_conditions(name, [self.visit(value) for value in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Return ``not a`` as a call."""
        if isinstance(node.op, ast.Not):
            return _join_conditions("logical_not", [self.visit(node.operand)])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Return ``a < b < c`` as a call."""
        if len(node.ops) == 1:
            return node
        sides = [node.left, *node.comparators]
        parts = zip(sides, node.ops, sides[1:], strict=False)
        return _join_conditions(
            "logical_and", [ast.Compare(a, [op], [b]) for a, op, b in parts]
        )


def _join_conditions(name: str, values: list[ast.expr]) -> ast.expr:
    """Return the calls that combine conditions by a function of two arrays."""
    function = ast.Name(f"unisono.{name}")
    made = values.pop(0)
    if not values:
        return ast.Call(function, [made], [])
    for value in values:
        made = ast.Call(function, [made, value], [])
    return made


def _condition(test: ast.expr) -> str:
    """Return a condition as an array."""
    copied = ast.parse(ast.unparse(test), mode="eval").body
    return ast.unparse(_Logic().visit(copied))


def _statements_after(found: object, outer: list[Any]) -> list[Any]:
    """Return the statements after a statement, in the same block."""
    for around in outer:
        for block in (getattr(around, "body", None), getattr(around, "orelse", None)):
            if isinstance(block, list) and found in block:
                return block[block.index(found) + 1 :]
    return []


def _advise_if(found: ast.If, outer: list[Any]) -> str:
    test = _condition(found.test)
    true, false = _values_of(found.body), _values_of(found.orelse)
    names = list(dict.fromkeys([*(true or {}), *(false or {})]))
    if true is None or false is None or len(names) != 1:
        told = f"{', '.join(_assigned_names([*found.body, *found.orelse])) or '_'} = "
        return (
            "Put each branch into a function that returns what it computes, and "
            f"write:\n    {told}unisono.cond({test}, if_true, if_false)\nor compute "
            f"both and choose:\n    {_where_text(test, 'a', 'b')}"
        )
    name = names[0]
    a, b = true.get(name, name), false.get(name, name)
    if name == "return" and name not in false:
        after = _values_of(_statements_after(found, outer)[:1]) or {}
        b = after.get(name, "...")
    start = "return " if name == "return" else f"{name} = "
    choose, select = _cond_text(test, a, b), _where_text(test, a, b)
    return f"Write:\n    {start}{choose}\nor:\n    {start}{select}"


def _assigned_names(body: list[Any]) -> list[str]:
    """Return the names that statements assign, in their order."""
    names: dict[str, None] = {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
    return list(names)


def _advise_while(found: ast.While) -> str:
    names = ", ".join(_assigned_names(found.body)) or "x"
    comma = "," if "," not in names else ""
    return (
        f"Put the body into a function `def body({names})` that ends with `return "
        f"{names}{comma}`, and write:\n    {names}{comma} = unisono.while_loop(lambda "
        f"{names}: {_condition(found.test)}, body, ({names}{comma}))"
    )


def _advise_assert(found: ast.Assert) -> str:
    test = found.test
    note = "" if found.msg is None else ast.unparse(found.msg)
    name = None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        name = _COMPARISONS.get(type(test.ops[0]))
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
    # Assertions compare arrays of one type, and a number might be of another.
    has_number = any(isinstance(side, ast.Constant) for side in sides)
    if isinstance(test, ast.Compare) and name is not None and not has_number:
        pair = f"{ast.unparse(test.left)}, {ast.unparse(test.comparators[0])}"
        more = f", message={note}" if note else ""
        return f"Write:\n    unisono.debugging.assert_{name}({pair}{more})"
    told = note or repr(ast.unparse(test))
    return f"Write:\n    unisono.debugging.Assert({_condition(test)}, [{told}])"


def _advise_loop(found: ast.For) -> str:
    target, source = ast.unparse(found.target), ast.unparse(found.iter)
    names = ", ".join(n for n in _assigned_names(found.body) if n != target) or "x"
    limit = found.iter.args[-1] if isinstance(found.iter, ast.Call) else None
    many = ast.unparse(limit) if isinstance(limit, ast.expr) else "n"
    return (
        f"Give the function a Python number, for which `{source}` is known when it is "
        f"traced; or put the body into a function `def body({target}, {names})` that "
        f"ends with `return {target} + 1, {names}`, and write:\n    {target}, {names} "
        f"= unisono.while_loop(lambda {target}, {names}: {target} < {many}, body, (0, "
        f"{names}))\nor unisono.map_fn or unisono.scan for a loop over the rows of an "
        "array."
    )


def _advise_call(found: ast.Call) -> str:
    name = _find_python_name(found)
    value = ast.unparse(found.args[-1]) if found.args else "x"
    if name == "bool":
        return f"Write {_cond_text(value, 'a', 'b')} or {_where_text(value, 'a', 'b')}."
    if name in ("range", "len"):
        return (
            "Give the function a Python number, or write unisono.while_loop, "
            "unisono.map_fn or unisono.scan."
        )
    kind = {"int": "int32", "float": "float32"}.get(name, "complex64")
    return (
        f"Leave {name}() out, because arrays are numbers; or write "
        f"unisono.cast({value}, unisono.{kind}); or give the function the Python "
        "number as an argument."
    )


errors.publish_errors(OperatorNotAllowedInGraphError)
