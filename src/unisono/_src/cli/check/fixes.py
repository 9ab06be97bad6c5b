"""Rewrites imports of a program, and its names that have only moved."""

from __future__ import annotations

import ast
import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import final

from unisono._src.cli.check import program_text
from unisono._src.cli.check.program_text import CodePart, ProgramFile
from unisono._src.cli.check.verdicts import RENAMED, Verdict


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
    lines = difflib.unified_diff(
        program.text.splitlines(keepends=True),
        fixed.splitlines(keepends=True),
        program_text.show(program.path),
        f"{program_text.show(program.path)} (changed)",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


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
