"""Text of a program, such as a name, that is shown to people.

A line feed would make one message look like two, and an escape sequence can move the
cursor of a terminal, colour it, or hide what is written.
"""

from __future__ import annotations


def escape(text: str) -> str:
    r"""Returns a text with control characters escaped, as `repr` shows them.

    >>> escape("name") + escape("\n\x1b[2J")
    'name\\n\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )
