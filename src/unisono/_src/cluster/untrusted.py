"""Checks the text that comes from the environment and from services.

Each function but `excerpt` returns the value that it has checked, or raises a
`ValueError`. The error names the variable, says what is wrong with it, and shows at
most a line of it, with control characters escaped.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

# These bounds are far above any real cluster. They keep a malformed variable from
# taking all memory.
MAX_TASKS = 65_536
MAX_TEXT = 1 << 20
# A name in the DNS has at most so many characters.
_MAX_HOST = 253
_SHOWN = 80

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LAYER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}")
_DIGITS = re.compile(r"[0-9]{1,10}")


def excerpt(value: object) -> str:
    r"""Returns a short, printable form of a value from outside the program.

    >>> excerpt("a" * 200)[-4:], excerpt(chr(27) + "[2J")
    ('a...', "'\\x1b[2J'")
    """
    # Cut before it is escaped, because the text may be very long.
    text = ascii(value if not isinstance(value, str) else value[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def bounded_text(name: str, text: str) -> str:
    """Returns the text; raises if it is longer than `MAX_TEXT`."""
    if len(text) > MAX_TEXT:
        raise ValueError(
            f"{name} is {len(text):,} characters long; at most {MAX_TEXT:,} are read."
        )
    return text


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Returns a number between `low` and `high`, given as an integer or as digits.

    >>> whole_number("SLURM_PROCID", "3", 0, 7)
    3
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number and not (isinstance(value, str) and _DIGITS.fullmatch(value)):
        raise ValueError(
            f"{name} must be a whole number from {low} to {high}, received "
            f"{excerpt(value)}."
        )
    # Mypy does not see that the check above leaves integers and digits only.
    number: int = int(value)  # type: ignore[call-overload]
    if not low <= number <= high:
        raise ValueError(
            f"{name} is {excerpt(number)}; it must be between {low} and {high}."
        )
    return number


def port(name: str, value: object) -> int:
    """Returns a TCP port, given as an integer or as digits."""
    return whole_number(name, value, 1, 65_535)


def host(name: str, value: object) -> str:
    """Returns a host name, an IPv4 address, or an IPv6 address in brackets."""
    if isinstance(value, str) and 0 < len(value) <= _MAX_HOST:
        if value.startswith("[") and value.endswith("]"):
            try:
                ipaddress.IPv6Address(value[1:-1])
                return value
            except ValueError:
                pass
        elif _HOST.fullmatch(value):
            return value
    raise ValueError(
        f"{name} names the host {excerpt(value)}; expected a host name, an IPv4 "
        "address, or an IPv6 address in brackets."
    )


def address(name: str, value: object) -> str:
    """Returns an address ``host:port``.

    >>> address("TF_CONFIG", "10.0.0.1:2222")
    '10.0.0.1:2222'
    """
    if not isinstance(value, str):
        raise ValueError(
            f"{name} must be a string 'host:port', received {excerpt(value)}."
        )
    if "://" in value:
        raise ValueError(
            f"{name} is {excerpt(value)}; write the address without a protocol, as "
            "'host:port'."
        )
    name_part, colon, port_part = value.rpartition(":")
    if not colon or value.endswith("]"):
        raise ValueError(
            f"{name} is {excerpt(value)}, without a port; use 'host:port'."
        )
    host(name, name_part)
    port(f"The port of {name}, {excerpt(value)},", port_part)
    return value


def job_name(name: str, value: object) -> str:
    """Returns the name of a job, such as ``worker``."""
    if isinstance(value, str) and _JOB.fullmatch(value):
        return value
    raise ValueError(
        f"{name} is {excerpt(value)}; a job is named by a letter or a digit and "
        "then letters, digits, '_', '-' or '.', such as 'worker'."
    )


def rpc_layer(name: str, value: object) -> str:
    """Returns the name of a protocol, such as ``grpc``."""
    if isinstance(value, str) and _LAYER.fullmatch(value):
        return value
    raise ValueError(f"{name} is {excerpt(value)}; expected a protocol such as 'grpc'.")


def check_unique(name: str, jobs: Mapping[str, list[str] | dict[int, str]]) -> None:
    """Raises if two tasks have the same address.

    Args:
        name: the variable.
        jobs: the addresses of each job, in order or by index.
    """
    owners: dict[str, str] = {}
    for job, tasks in jobs.items():
        indexed = tasks if isinstance(tasks, dict) else dict(enumerate(tasks))
        for index, where in indexed.items():
            task = f"{job} {index}"
            if where in owners:
                raise ValueError(
                    f"{name} gives {excerpt(where)} to both {owners[where]} and "
                    f"{task}; every task needs an address of its own."
                )
            owners[where] = task
