"""Rewrites imports of a program, and its names that have only moved."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import final

from unisono._src.cli.check import program_text
from unisono._src.cli.check.program_text import CodePart, ProgramFile
from unisono._src.cli.check.verdicts import RENAMED, Verdict

# So many lines of both texts can be compared by `difflib`.
_SHORT = 10_000


@final
@dataclasses.dataclass(frozen=True)
class _Edit:
    """Holds new text for a place in one line; columns count bytes, as Python's do."""

    line: int
    start: int
    end: int
    text: str


def fix(program: ProgramFile, verdicts: Sequence[Sequence[Verdict]]) -> str:
    """Returns the text of a program with imports and renamed names changed.

    Args:
        program: the program.
        verdicts: for each of its parts what became of the uses in it.
    """
    texts = []
    for part, found in zip(program.parts, verdicts, strict=True):
        edits = [*_imports(part), *filter(None, map(_rename, found))]
        texts.append(_apply(part, edits))
    return program.replace_parts(texts)


def show(program: ProgramFile, fixed: str) -> str:
    """Returns the difference between a program's text and the changed one."""
    old = program.text.splitlines(keepends=True)
    new = fixed.splitlines(keepends=True)
    name = program_text.show(program.path)
    names = name, f"{name} (changed)"
    # An edit stays in its line. `difflib` would look for lines that moved, which takes
    # hours for a long file; it is for notebooks that were laid out otherwise.
    is_short = len(old) + len(new) < _SHORT
    if len(old) != len(new) and is_short:
        lines: Iterable[str] = difflib.unified_diff(old, new, *names)
    else:
        lines = _compare_lines(old, new, *names)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _compare_lines(
    old: list[str], new: list[str], old_name: str, new_name: str
) -> Iterator[str]:
    """Yields a unified diff of texts in which line stands against line."""
    pairs = list(itertools.zip_longest(old, new))
    changed = [i for i, (before, after) in enumerate(pairs) if before != after]
    if changed:
        yield f"--- {old_name}\n"
        yield f"+++ {new_name}\n"
    # Changes with at most six lines between them share their context, three and three.
    breaks = [i for i in range(1, len(changed)) if changed[i] - changed[i - 1] > 7]
    for first, stop in itertools.pairwise([0, *breaks, len(changed)]):
        if first == stop:
            continue
        begin, end = max(0, changed[first] - 3), changed[stop - 1] + 4
        where = _range(begin, old[begin:end]), _range(begin, new[begin:end])
        yield f"@@ -{where[0]} +{where[1]} @@\n"
        for is_same, run in itertools.groupby(pairs[begin:end], lambda p: p[0] == p[1]):
            both = list(run)
            if is_same:
                yield from (f" {before}" for before, _ in both)
                continue
            yield from (f"-{before}" for before, _ in both if before is not None)
            yield from (f"+{after}" for _, after in both if after is not None)


def _range(begin: int, lines: list[str]) -> str:
    return f"{begin + 1}" if len(lines) == 1 else f"{begin + 1},{len(lines)}"


def _apply(part: CodePart, edits: list[_Edit]) -> str:
    lines = [line.encode() for line in part.lines]
    # From the end of each line, so that the columns before an edit stay right.
    for edit in sorted(set(edits), key=lambda e: (e.line, e.start), reverse=True):
        old, new = lines[edit.line - 1], edit.text.encode()
        lines[edit.line - 1] = old[: edit.start] + new + old[edit.end :]
    return b"".join(lines).decode()


def _imports(part: CodePart) -> Iterator[_Edit]:
    for node in ast.walk(part.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                new = _rewrite_import(alias)
                if new and alias.end_col_offset is not None:
                    place = (alias.lineno, alias.col_offset, alias.end_col_offset)
                    if alias.lineno == alias.end_lineno:
                        yield _Edit(*place, new)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = _find_new_module(node.module or "")
            if module is not None:
                yield from _from_imports(part, node, module)


def _rewrite_import(alias: ast.alias) -> str | None:
    """Returns the new text of one name of an `import` statement, or None."""
    module = _find_new_module(alias.name)
    if module is None:
        return None
    if alias.asname:
        return f"{module} as {alias.asname}"
    return "unisono as tensorflow"  # The program goes on saying tensorflow.


def _from_imports(part: CodePart, node: ast.ImportFrom, module: str) -> Iterator[_Edit]:
    line = part.lines[node.lineno - 1].encode()
    start = node.col_offset + len("from")
    while line[start : start + 1] in (b" ", b"\t"):
        start += 1
    old = (node.module or "").encode()
    # Otherwise there is a line break or a comment in between; it stays as it is.
    if line[start : start + len(old)] == old:
        yield _Edit(node.lineno, start, start + len(old), module)


def _find_new_module(module: str) -> str | None:
    """Returns the module to import instead of one of TensorFlow's, or None."""
    package, _, path = module.partition(".")
    if package != "tensorflow" or path == "python" or path.startswith("python."):
        return None
    path = path.removeprefix("compat.v2").removeprefix(".")
    return f"unisono.{path}" if path else "unisono"


def _rename(verdict: Verdict) -> _Edit | None:
    node, use = verdict.use.node, verdict.use
    if verdict.status != RENAMED or not use.written.endswith(use.path):
        return None
    if not isinstance(node, ast.Attribute) or node.lineno != node.end_lineno:
        return None
    end = node.end_col_offset or 0
    if ast.unparse(node) != use.written or end - node.col_offset != len(use.written):
        return None  # There are spaces in it.
    return _Edit(node.lineno, end - len(use.path), end, verdict.new)
