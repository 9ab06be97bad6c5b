"""Finds the code blocks of a page and says what is to be done with each."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
from collections.abc import Iterator

import yaml

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
_DIRECTIVE = re.compile(r"^\{[\w:-]+\}")
_WORDS = {"show", "html", "curves", "picture", "foreign"}
_SETTINGS = {"axis", "file", "raises", "exit"}
_OURS = {"python", "pycon", "console"}
_FOREIGN = {"python", "console", "bash", "yaml", "json"}


@dataclasses.dataclass(frozen=True)
class Block:
    """One code block of a page.

    Attributes:
        line: the number of the line behind the opening fence.
        end: the number of the line of the closing fence.
        language: the first word of the fence, such as ``"python"``.
        text: the lines between the fences.
        words: further words of the fence, such as ``"show"``.
        settings: further words of the fence that have values, such as ``file=a.py``.
    """

    line: int
    end: int
    language: str
    text: str
    words: frozenset[str]
    settings: dict[str, str]

    @property
    def is_code(self) -> bool:
        """Whether it counts as code."""
        return self.language != "text"

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to another system and is parsed only."""
        return "foreign" in self.words

    def as_json(self) -> dict[str, object]:
        """Returns the block as plain data."""
        return {**dataclasses.asdict(self), "words": sorted(self.words)}


class BlockError(ValueError):
    """A block cannot be read, or does not say what it is."""


def find(text: str, page: str) -> list[Block]:
    """Returns the code blocks of a page in order.

    Args:
        text: the page, in Markdown.
        page: its name, for messages.

    Raises:
        BlockError: a fence says something unknown, or foreign code cannot be parsed.
    """
    found = []
    for line, end, info, inner in _fences(text.splitlines()):
        if _DIRECTIVE.match(info):
            continue
        block = _block(line, end, info, inner, page)
        if block.is_foreign:
            _parse(block, page)
        found.append(block)
    return found


def _fences(lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    """Yields first line, last line, info string and text of each outer fence.

    A fence inside a directive, such as a tab or a card, is found as well.
    """
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if not opened or (opened["info"].strip() and opened["info"].startswith("`")):
            continue
        info, ticks = opened["info"].strip(), opened["ticks"]
        if _DIRECTIVE.match(info):  # What is inside is found by going on.
            continue
        if not info:  # The end of a directive.
            continue
        begin = number
        while number < len(lines) and lines[number].strip() != ticks:
            number += 1
        cut = len(opened["indent"])
        inner = "\n".join(line[cut:] for line in lines[begin:number])
        yield begin + 1, number + 1, info, inner
        number += 1


def _block(line: int, end: int, info: str, text: str, page: str) -> Block:
    language, *rest = info.split()
    pairs = [word.partition("=") for word in rest]
    words = {name for name, equals, _ in pairs if not equals}
    settings = {name: value for name, equals, value in pairs if equals}
    unknown = (words - _WORDS) | (set(settings) - _SETTINGS)
    if unknown:
        raise BlockError(f"{page}:{line}: unknown words {sorted(unknown)} of a block.")
    allowed = _FOREIGN if "foreign" in words else _OURS | {"text"}
    if language not in allowed:
        raise BlockError(
            f"{page}:{line}: a block of {language!r} must be one of {sorted(_OURS)}, "
            f"or be marked as foreign and be one of {sorted(_FOREIGN)}."
        )
    return Block(line, end, language, text, frozenset(words), settings)


def commands(text: str) -> list[tuple[str, str]]:
    """Returns the commands behind ``$`` in a console block, each with its output."""
    found: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif found and found[-1][0][-1].endswith("\\") and not found[-1][1]:
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
    return [("\n".join(command), "\n".join(output)) for command, output in found]


def _parse(block: Block, page: str) -> None:
    try:
        if block.language == "python":
            ast.parse(block.text)
        elif block.language == "yaml":
            list(yaml.safe_load_all(block.text))
        elif block.language == "json":
            json.loads(block.text)
        else:
            _parse_shell(block)
    except (SyntaxError, ValueError, yaml.YAMLError) as error:
        raise BlockError(f"{page}:{block.line}: foreign code: {error}") from error


def _parse_shell(block: Block) -> None:
    text = block.text
    if block.language == "console":
        text = "\n".join(command for command, _ in commands(text))
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
