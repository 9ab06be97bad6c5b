"""Sphinx extension: puts what the blocks of a page printed into the page."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

import blocks
import pictures
import run_pages
import terminal
from sphinx.util import logging

_LOG = logging.getLogger(__name__)


@functools.cache
def _platform() -> str:
    return run_pages.platform_key()


def insert(app: Any, name: str, content: list[str]) -> None:
    """Replaces the text of a page by one that shows the results of its blocks."""
    if pathlib.Path(app.env.doc2path(name)).suffix == ".ipynb":
        return
    page = run_pages.Page(name, blocks.find(content[0], name))
    results = run_pages.stored(page, _platform())
    if results is None:
        _LOG.warning("its blocks have not run: docs/tools/run_pages.py", location=name)
        results = [{} for _ in page.to_run]
    lines = content[0].splitlines()
    told = dict(zip((b.line for b in page.to_run), results, strict=True))
    # From the end, so that the numbers of the lines before stay right.
    for block in reversed(page.blocks):
        _show(lines, block, told.get(block.line, {}))
    content[0] = "\n".join(lines) + "\n"


def _show(lines: list[str], block: blocks.Block, result: dict[str, str]) -> None:
    """Changes the fence of a block and adds its result behind it."""
    opening, closing = block.line - 2, block.end - 1
    indent = lines[opening][: len(lines[opening]) - len(lines[opening].lstrip())]
    if "text" in result:
        shown = ["", "```{code-block} text", ":class: output", ""]
        shown += [*result["text"].rstrip().splitlines(), "```"]
        lines[closing + 1 : closing + 1] = [indent + line for line in shown]
    if "html" in result:
        shown = ["", "```{raw} html", '<div class="shown-html" tabindex="0">']
        shown += [*result["html"].splitlines(), "</div>", "```"]
        lines[closing + 1 : closing + 1] = [indent + line for line in shown]
    if "curves" in result:
        axis = block.settings.get("axis", "step")
        drawn = pictures.losses(json.loads(result["curves"]), axis).svg()
        shown = [
            "",
            "```{raw} html",
            f'<div class="picture" tabindex="0">{drawn}</div>',
        ]
        shown += ["```"]
        lines[closing + 1 : closing + 1] = [indent + line for line in shown]
    if "picture" in result:
        drawn = terminal.draw(result["command"], result["picture"])
        lines[opening : closing + 1] = [
            f"{indent}{line}"
            for line in (
                "```{raw} html",
                f'<div class="picture" tabindex="0">{drawn}</div>',
                "```",
            )
        ]
        return
    if "console" in result:
        lines[opening + 1 : closing] = [
            indent + line for line in result["console"].splitlines()
        ]
    caption = block.settings.get("file")
    if caption:
        lines[opening] = (
            f"{indent}```{{code-block}} {block.language}\n{indent}:caption: {caption}\n"
        )
    elif block.is_foreign:
        lines[opening] = (
            f"{indent}```{{code-block}} {block.language}\n{indent}:class: foreign\n"
        )
    else:
        lines[opening] = f"{indent}```{block.language}"


def setup(app: Any) -> dict[str, bool]:
    """Registers the extension."""
    app.connect("source-read", insert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
