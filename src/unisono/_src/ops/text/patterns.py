"""Regular expressions of RE2, TensorFlow's, computed by Python's `re`.

Both take the leftmost match and prefer the first alternative. Where they read the same
characters in another way, the expression is rewritten; what only one of them has is
refused, so that no expression means something else here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from unisono._src.foundation import errors, printable

DIFFERENCE = (
    "Texts must be UTF-8. Refused are Unicode classes such as `\\pL`, classes such as "
    "`[:^alpha:]`, `(?i)` in an expression with other letters than those of ASCII, and "
    "a `rewrite` with a group that the expression lacks."
)

_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f",
    "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~",
    "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
# RE2's white space has no vertical tab.
_SPACE = r"\t\n\f\r "
_TOKENS = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|$) | \\(?P<escaped>.) | (?P<look>\(\?<?[=!])
    | \[:(?P<not>\^?)(?P<class>\w+):\] | (?P<open>\[\^?\]?) | (?P<close>\])
    | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)


def _refuse(pattern: str, why: object) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"Invalid pattern: {printable.escape(pattern)}, error: {why}"
    )


def _translate(pattern: str) -> Iterator[str]:
    """Yields the parts of the same expression for Python's `re`."""
    is_in_class = False
    is_multiline = re.search(r"\(\?\w*m", pattern) is not None
    for token in _TOKENS.finditer(pattern):
        kind, text = token.lastgroup, token.group()
        if text.startswith("\\Q"):
            yield re.escape(token["quoted"])
        elif kind == "escaped":
            yield _translate_escape(pattern, token["escaped"], is_in_class)
        elif kind == "look":
            raise _refuse(pattern, f"invalid perl operator: {text}")
        elif kind == "class" and is_in_class:
            if token["class"] not in _CLASSES or token["not"]:
                raise _refuse(pattern, f"invalid character class range: {text}")
            yield _CLASSES[token["class"]]
        elif is_in_class:
            is_in_class = kind != "close"
            # Python gives these a meaning, or will do so.
            yield text if not is_in_class else re.sub(r"([\[&|~])", r"\\\1", text)
        elif kind in ("open", "class"):
            is_in_class = True
            yield text.replace("]", "\\]") if kind == "open" else ""
        else:
            yield r"\Z" if text == "$" and not is_multiline else text


def _translate_escape(pattern: str, letter: str, is_in_class: bool) -> str:
    """Returns an escape for Python's `re`."""
    if letter in "pPCZ" or (letter.isdigit() and not (letter == "0" or is_in_class)):
        raise _refuse(pattern, f"invalid escape sequence: \\{letter}")
    if letter == "s":
        return _SPACE if is_in_class else f"[{_SPACE}]"
    if letter == "S" and not is_in_class:
        return f"[^{_SPACE}]"
    return r"\Z" if letter == "z" else f"\\{letter}"


def _decode(x: str | bytes) -> str:
    """Returns text as characters.

    Raises:
        InvalidArgumentError: it is not UTF-8.
    """
    try:
        return x if isinstance(x, str) else bytes(x).decode()
    except UnicodeDecodeError as e:
        raise errors.InvalidArgumentError(
            f"A regular expression takes text in UTF-8, received {x!r}. Decode it in "
            "dataset.map with its own encoding first, as in text.decode('latin-1')."
        ) from e


@functools.lru_cache(256)
def _compile(pattern: str) -> re.Pattern[str]:
    """Returns the expression of RE2 for Python.

    Raises:
        InvalidArgumentError: it is wrong.
    """
    if "(?i" in pattern and not pattern.isascii():
        raise _refuse(pattern, "(?i) takes letters of ASCII here")
    try:
        return re.compile("".join(_translate(pattern)), re.ASCII)
    except (re.error, OverflowError, RecursionError) as e:
        raise _refuse(pattern, e) from e


@functools.lru_cache(256)
def _read_rewrite(rewrite: str, groups: int) -> tuple[str | int, ...]:
    """Returns the texts and the numbers of groups of a rewrite.

    Raises:
        InvalidArgumentError: there is no such group, or a backslash stands alone.
    """
    parts: list[str | int] = []
    for text, after in re.findall(r"([^\\]+)|\\(.?)", rewrite, re.DOTALL):
        if text or after == "\\":
            parts.append(text or after)
        elif after.isdigit() and int(after) <= groups:
            parts.append(int(after))
        else:
            raise errors.InvalidArgumentError(
                f"Invalid rewrite {printable.escape(rewrite)}: the pattern has "
                f"{groups} groups. Write \\\\1 for the first, \\\\\\\\ for a backslash."
            )
    return tuple(parts)


def make_replacement(
    pattern: str | bytes, rewrite: str | bytes, is_global: bool
) -> Callable[[bytes], bytes]:
    """Returns a function that replaces matches in a text.

    Args:
        pattern: the expression.
        rewrite: what to put for a match.
        is_global: whether to replace every match, or the first one.
    """
    compiled = _compile(_decode(pattern))
    parts = _read_rewrite(_decode(rewrite), compiled.groups)

    def replace(given: bytes) -> bytes:
        text, end, made = _decode(given), 0, list[str]()
        last = -1
        for match in compiled.finditer(text):
            # Unlike Python, RE2 finds no empty match where another one has ended.
            if match.end() == match.start() == last:
                continue
            made.append(text[end : match.start()])
            made += [p if isinstance(p, str) else match[p] or "" for p in parts]
            end = last = match.end()
            if not is_global:
                break
        made.append(text[end:])
        return "".join(made).encode()

    return replace


def make_match(pattern: str | bytes) -> Callable[[bytes], bool]:
    """Returns a function that says whether an expression matches a whole text."""
    compiled = _compile(_decode(pattern))
    return lambda text: compiled.fullmatch(_decode(text)) is not None
