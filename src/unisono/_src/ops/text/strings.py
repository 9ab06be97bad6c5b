"""Functions of text: split, join, cut and replace, as in ``tf.strings``.

Regular expressions are those of Google's RE2, for Python's `re`. Both take the leftmost
match and prefer the first alternative. Where they read the same characters in another
way, the expression is rewritten; what only one of them has is refused, so that no
expression means something else here.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from unisono._src.foundation import dtypes, errors, printable
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops.tensors import TensorLike
from unisono._src.ops.text import arrays, hashing
from unisono._src.ops.text.arrays import Given, TextLike

__all__ = [
    "bytes_split",
    "join",
    "length",
    "lower",
    "reduce_join",
    "regex_full_match",
    "regex_replace",
    "split",
    "strip",
    "substr",
    "to_hash_bucket_fast",
    "upper",
]


_DIFFERENCE = (
    "Texts must be UTF-8. These are errors: Unicode classes such as `\\pL`, negated "
    "classes such as `[:^alpha:]`, `(?i)` in an expression with non-ASCII letters, and "
    "a `rewrite` with a group that the expression does not have."
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


def _make_replacement(
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


def _make_match(pattern: str | bytes) -> Callable[[bytes], bool]:
    """Returns a function that says whether an expression matches a whole text."""
    compiled = _compile(_decode(pattern))
    return lambda text: compiled.fullmatch(_decode(text)) is not None


_PADDED = (
    "There are no ragged tensors: for an array of strings the parts are along one more "
    'axis, and shorter rows are padded with empty strings, as `to_tensor("")` does.'
)
_UTF8 = "UTF8_CHAR"


@everyday_name("strings.split", difference=_PADDED)
def split(
    input: TextLike,
    sep: str | bytes | None = None,
    maxsplit: int = -1,
    name: str | None = None,
) -> Given:
    """Splits each string into parts.

    Args:
        input: a string, or an array of strings.
        sep: the separator of the parts; None or "" for any run of whitespace.
        maxsplit: the maximum number of splits of a string; -1 for no limit.
        name: accepted for compatibility with TensorFlow and ignored.

    Returns:
        A vector for a single string. For an array, an array with one more axis, whose
        shorter rows are padded with empty strings.

    >>> split("a  b c").tolist(), split(["a b", "c"]).tolist()
    ([b'a', b'b', b'c'], [[b'a', b'b'], [b'c', b'']])
    """
    found = arrays.read("strings.split", input)
    between = arrays.read("strings.split", sep) if sep else None
    if isinstance(between, np.ndarray):
        raise errors.InvalidArgumentError(
            f"sep of split is one text, received {sep!r}."
        )

    def parts(text: bytes) -> list[bytes]:
        if not maxsplit:
            return [text]
        made = text.split(between, maxsplit)
        # TensorFlow gives the rest after the last split, even if there is none.
        return [*made, b""] if len(made) == maxsplit and not between else made

    return _pad(parts, found)


@everyday_name("strings.bytes_split", difference=_PADDED)
def bytes_split(input: TextLike, name: str | None = None) -> Given:
    """Splits each string into its bytes.

    >>> bytes_split("abc").tolist()
    [b'a', b'b', b'c']
    """
    found = arrays.read("strings.bytes_split", input)
    return _pad(lambda t: [t[i : i + 1] for i in range(len(t))], found)


def _pad(parts: Callable[[bytes], list[bytes]], found: bytes | np.ndarray) -> Given:
    """Returns the parts of each text, filled up to the longest row."""
    if isinstance(found, bytes):
        made = parts(found)
        return arrays.give(arrays.fill(made, (len(made),)))
    rows = list(map(parts, found.ravel().tolist()))
    width = max(map(len, rows), default=0)
    flat = [x for row in rows for x in (*row, *[b""] * (width - len(row)))]
    return arrays.give(arrays.fill(flat, (*found.shape, width)))


@everyday_name("strings.join")
def join(
    inputs: Sequence[TextLike], separator: str | bytes = "", name: str | None = None
) -> Given:
    """Joins strings, element by element.

    Args:
        inputs: arrays of equal shape; a single string is broadcast to that shape.
        separator: the string to put between them.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the shapes differ.

    >>> join([["a", "b"], "c"], "-").tolist()
    [b'a-c', b'b-c']
    """
    found = [arrays.read("strings.join", x) for x in inputs]
    between = arrays.read("strings.join", separator)
    assert isinstance(between, bytes)
    shapes = {x.shape for x in found if isinstance(x, np.ndarray)}
    if len(shapes) > 1:
        raise errors.InvalidArgumentError(
            f"join takes texts of one shape, received {sorted(shapes)}."
        )
    if not shapes:
        texts = [x for x in found if isinstance(x, bytes)]
        return arrays.give(between.join(texts))
    shape = shapes.pop()
    columns = [np.broadcast_to(x, shape).ravel().tolist() for x in map(_box, found)]
    made = list(map(between.join, zip(*columns, strict=True)))
    return arrays.give(arrays.fill(made, shape))


def _box(x: bytes | np.ndarray) -> np.ndarray:
    """Returns texts as an array: NumPy would cut one text at zero bytes."""
    return arrays.fill([x], ()) if isinstance(x, bytes) else x


@everyday_name("strings.reduce_join")
def reduce_join(
    inputs: TextLike,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    separator: str | bytes = "",
    name: str | None = None,
) -> Given:
    """Joins the strings along axes.

    Args:
        inputs: the strings.
        axis: the axes, joined in this order; None for all of them.
        keepdims: whether to keep these axes, with size 1.
        separator: the string to put between them.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        OutOfRangeError: an axis does not exist.

    >>> reduce_join([["a", "b"], ["c", "d"]], -1, separator=" ").tolist()
    [b'a b', b'c d']
    """
    found = _box(arrays.read("strings.reduce_join", inputs))
    between = arrays.read("strings.reduce_join", separator)
    assert isinstance(between, bytes)
    given = range(found.ndim) if axis is None else np.ravel(axis).tolist()
    if any(not -found.ndim <= a < found.ndim for a in given):
        raise errors.OutOfRangeError(
            f"Invalid reduction dimension {axis} for text of shape {found.shape}."
        )
    axes = [a % found.ndim for a in given]
    kept = [a for a in range(found.ndim) if a not in axes]
    moved = found.transpose(kept + axes)
    outer = moved.shape[: len(kept)]
    rows = moved.reshape(math.prod(outer), math.prod(moved.shape[len(kept) :]))
    made = [between.join(row) for row in rows]
    shape = [1 if a in axes else n for a, n in enumerate(found.shape)]
    return arrays.give(arrays.fill(made, shape if keepdims else outer))


@everyday_name("strings.length")
def length(input: TextLike, unit: str = "BYTE", name: str | None = None) -> Given:
    """Returns the length of each string, as int32.

    Args:
        input: the strings.
        unit: "BYTE" or "UTF8_CHAR".
        name: accepted for compatibility with TensorFlow and ignored.

    >>> length(["a", "\u00e9"]).tolist(), length("\u00e9", unit="UTF8_CHAR").numpy()
    ([1, 2], np.int32(1))
    """
    count = len if _is_bytes(unit) else lambda text: len(_starts(text))
    return arrays.each(count, arrays.read("strings.length", input), dtypes.int32)


def _is_bytes(unit: str) -> bool:
    """Returns whether a unit is bytes, or else characters of UTF-8.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if unit not in ("BYTE", _UTF8):
        raise errors.InvalidArgumentError(
            f'unit must be "BYTE" or "UTF8_CHAR", received {unit!r}.'
        )
    return unit != _UTF8


def _starts(text: bytes) -> list[int]:
    """Returns where characters of UTF-8 begin: at bytes that continue none."""
    return [i for i, byte in enumerate(text) if byte & 0xC0 != 0x80]


@everyday_name("strings.substr")
def substr(
    input: TextLike,
    pos: TensorLike,
    len: TensorLike,
    unit: str = "BYTE",
    name: str | None = None,
) -> Given:
    """Returns a substring of each string.

    Args:
        input: the strings.
        pos: where each substring begins; a negative position counts from the end.
        len: the length of each substring; one that is too long ends with its string.
        unit: the unit of `pos` and `len`: "BYTE" or "UTF8_CHAR".
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: a position is outside its string, or the shapes do not
            fit.

    >>> substr("hello", 1, 3), substr("hello", -3, 9)
    (b'ell', b'llo')
    """
    found = _box(arrays.read("strings.substr", input))
    starts, sizes = (arrays.numbers("strings.substr", x) for x in (pos, len))
    if starts.shape != sizes.shape or starts.dtype != sizes.dtype:
        raise errors.InvalidArgumentError(
            f"pos and len of substr are alike, received {starts.dtype} of shape "
            f"{starts.shape} and {sizes.dtype} of shape {sizes.shape}."
        )
    try:
        texts, starts, sizes = np.broadcast_arrays(found, starts, sizes)
    except ValueError as e:
        raise errors.InvalidArgumentError(f"substr: {e}") from e
    cut = _cut_bytes if _is_bytes(unit) else _cut_characters
    flat = (x.ravel().tolist() for x in (texts, starts, sizes))
    return arrays.give(arrays.fill(list(map(cut, *flat)), texts.shape))


def _cut_bytes(text: bytes, start: int, size: int) -> bytes:
    begin = _find_begin(start, len(text))
    # As in TensorFlow a negative size is the rest of the text.
    return text[begin : begin + size] if size >= 0 else text[begin:]


def _cut_characters(text: bytes, start: int, size: int) -> bytes:
    marks = _starts(text)
    begin = _find_begin(start, len(marks))
    marks.append(len(text))
    return text[marks[begin] : marks[min(begin + max(size, 0), len(marks) - 1)]]


def _find_begin(start: int, size: int) -> int:
    """Returns where a part begins.

    Raises:
        InvalidArgumentError: that is outside the text.
    """
    if not -size <= start <= size:
        raise errors.InvalidArgumentError(
            f"pos {start} out of range for string of length {size} in substr."
        )
    return start + size if start < 0 else start


def _change_case(name: str, input: TextLike, encoding: str) -> Given:
    """Returns texts in which a method of `bytes` or `str` has changed letters."""
    found = arrays.read(f"strings.{name}", input)
    if encoding not in ("", "utf-8"):
        raise errors.InvalidArgumentError(
            f'encoding of {name} must be "" or "utf-8", received {encoding!r}.'
        )
    if not encoding:
        return arrays.each(getattr(bytes, name), found)
    change = getattr(str, name)
    return arrays.each(lambda t: change(t.decode(errors="replace")).encode(), found)


@everyday_name("strings.lower")
def lower(input: TextLike, encoding: str = "", name: str | None = None) -> Given:
    """Converts strings to lowercase.

    Args:
        input: the strings.
        encoding: "" converts ASCII letters only, "utf-8" all Unicode letters.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> lower("ABC").numpy(), lower("\u00c9", encoding="utf-8").decode() == "\u00e9"
    (b'abc', True)
    """
    return _change_case("lower", input, encoding)


@everyday_name("strings.upper")
def upper(input: TextLike, encoding: str = "", name: str | None = None) -> Given:
    """Converts strings to uppercase.

    The arguments are those of `lower`.

    >>> upper("abc").numpy()
    b'ABC'
    """
    return _change_case("upper", input, encoding)


@everyday_name("strings.strip")
def strip(input: TextLike, name: str | None = None) -> Given:
    r"""Returns strings without the whitespace at both ends.

    >>> strip(["  a b\n"]).tolist()
    [b'a b']
    """
    return arrays.each(bytes.strip, arrays.read("strings.strip", input))


@everyday_name("strings.regex_replace", difference=_DIFFERENCE)
def regex_replace(
    input: TextLike,
    pattern: str | bytes,
    rewrite: str | bytes,
    replace_global: bool = True,
    name: str | None = None,
) -> Given:
    r"""Replaces the matches of a regular expression in each string.

    Args:
        input: the strings.
        pattern: the expression, in the syntax of RE2.
        rewrite: the replacement; ``\1`` is the first group, ``\0`` the whole match.
        replace_global: whether to replace all matches, or the first one only.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the expression is invalid, or a string is not UTF-8.

    >>> regex_replace("a1b22", "[0-9]+", "<\\0>")
    b'a<1>b<22>'
    """
    replace = _make_replacement(pattern, rewrite, replace_global)
    return arrays.each(replace, arrays.read("strings.regex_replace", input))


@everyday_name("strings.regex_full_match", difference=_DIFFERENCE)
def regex_full_match(
    input: TextLike, pattern: str | bytes, name: str | None = None
) -> Given:
    """Returns whether a regular expression matches the whole of each string.

    >>> regex_full_match(["ab", "abc"], "a.").tolist()
    [True, False]
    """
    match = _make_match(pattern)
    return arrays.each(
        match, arrays.read("strings.regex_full_match", input), dtypes.bool
    )


@everyday_name("strings.to_hash_bucket_fast")
def to_hash_bucket_fast(
    input: TextLike, num_buckets: int, name: str | None = None
) -> Given:
    """Returns a number below `num_buckets` for each string, equal in every program.

    It is the hash that TensorFlow uses, `Fingerprint64` of FarmHash, modulo
    `num_buckets`.

    Raises:
        InvalidArgumentError: `num_buckets` is not positive.

    >>> to_hash_bucket_fast(["Hello", "TensorFlow"], 3).tolist()
    [0, 2]
    """
    if num_buckets < 1:
        raise errors.InvalidArgumentError(
            f"num_buckets must be at least 1, received {num_buckets}."
        )
    found = arrays.read("strings.to_hash_bucket_fast", input)
    return arrays.each(
        lambda text: hashing.fingerprint(text) % num_buckets, found, dtypes.int64
    )
