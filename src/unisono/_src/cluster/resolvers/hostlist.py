"""Expands Slurm's short forms: lists of hosts, and numbers of tasks per node."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from unisono._src.cluster import untrusted

_PART = re.compile(r"[^\[\]]+|\[[^\[\]]*\]")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_REPEATED = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
# A product of more ranges than this is no list of hosts that anybody has.
_MAX_BRACKETS = 4


def expand_hosts(name: str, text: str) -> list[str]:
    """Returns the hosts of a Slurm list in its order, with leading zeros kept.

    >>> expand_hosts("SLURM_STEP_NODELIST", "n[08-10,12],m5,r[1-2]n[3-4]")
    ['n08', 'n09', 'n10', 'n12', 'm5', 'r1n3', 'r1n4', 'r2n3', 'r2n4']

    Raises:
        ValueError: the text is no such list, or stands for too many hosts.
    """
    hosts: list[str] = []
    for entry in _split(name, untrusted.bounded_text(name, text)):
        room = untrusted.MAX_TASKS - len(hosts)
        found = list(itertools.islice(_expand(name, entry), room + 1))
        if len(found) > room:
            raise ValueError(
                f"{name} stands for more than {untrusted.MAX_TASKS:,} hosts: "
                f"{untrusted.excerpt(text)}."
            )
        hosts += [untrusted.host(name, host) for host in found]
    twice = next((h for h, n in itertools.pairwise(sorted(hosts)) if h == n), None)
    if twice is not None:
        raise ValueError(f"{name} names the host {untrusted.excerpt(twice)} twice.")
    return hosts


def expand_counts(name: str, text: str) -> list[int]:
    """Returns how many tasks each node has, from Slurm's form with repetitions.

    >>> expand_counts("SLURM_STEP_TASKS_PER_NODE", "3(x2),2,1")
    [3, 3, 2, 1]

    Raises:
        ValueError: the text is no such list, or stands for too many tasks.
    """
    counts: list[int] = []
    for part in untrusted.bounded_text(name, text).split(","):
        match = _REPEATED.fullmatch(part)
        if match is None:
            raise ValueError(
                f"{name} must be a list such as '3(x2),1', received "
                f"{untrusted.excerpt(text)}."
            )
        each, times = int(match[1]), int(match[2] or 1)
        total = sum(counts) + each * times
        if not each or not times or total > untrusted.MAX_TASKS:
            raise ValueError(
                f"{name} is {untrusted.excerpt(text)}; every node has at least one "
                f"task, and all have at most {untrusted.MAX_TASKS:,}."
            )
        counts += [each] * times
    return counts


def _split(name: str, text: str) -> Iterator[str]:
    """Yields the entries between commas outside of brackets."""
    entry, depth = "", 0
    # One more comma, which ends the last entry.
    for character in text + ",":
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise _malformed_error(name, text)
        if character == "," and depth == 0:
            if not entry:
                raise _malformed_error(name, text)
            yield entry
            entry = ""
        else:
            entry += character
    if entry:
        raise _malformed_error(name, text)


def _expand(name: str, entry: str) -> Iterator[str]:
    parts = _PART.findall(entry)
    brackets = sum(part.startswith("[") for part in parts)
    if brackets > _MAX_BRACKETS:
        raise _malformed_error(name, entry)
    # `itertools.product` reads each of its arguments to the end before it yields
    # anything. So each range is bounded here, or a large one would take all memory.
    choices = [
        list(itertools.islice(_range(name, part), untrusted.MAX_TASKS + 1))
        if part.startswith("[")
        else [part]
        for part in parts
    ]
    return ("".join(chosen) for chosen in itertools.product(*choices))


def _range(name: str, bracket: str) -> Iterator[str]:
    for part in bracket[1:-1].split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _malformed_error(name, bracket)
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ValueError(
                f"{name} has the range {untrusted.excerpt(part)}, which runs backwards."
            )
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _malformed_error(name: str, text: str) -> ValueError:
    return ValueError(
        f"{name} must be a list of hosts such as 'n[1-3,7],m5', received "
        f"{untrusted.excerpt(text)}."
    )
