"""Sphinx extension: writes what the search page ranks, a text for each section."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from docutils import nodes
from sphinx import addnodes

# Lines of a section beyond this are about details.
_MOST_TEXT = 6000
_NO_TEXT = (addnodes.toctree, nodes.raw, nodes.image, nodes.comment, addnodes.index)


def _texts(node: nodes.Node) -> list[str]:
    """Returns the texts of a node without those of sections inside it."""
    if isinstance(node, (nodes.section, *_NO_TEXT)):
        return []
    if isinstance(node, nodes.Text):
        return [node.astext()]
    found = [text for child in node.children for text in _texts(child)]
    if isinstance(node, nodes.TextElement) and not isinstance(node, nodes.Inline):
        found.append("\n")
    return found


def sections(tree: nodes.document) -> list[dict[str, str]]:
    """Returns anchor, title and text of each section of a page."""
    found = []
    for section in tree.findall(nodes.section):
        title = section.next_node(nodes.title)
        text = "".join(
            piece
            for child in section.children
            if not isinstance(child, nodes.title)
            for piece in _texts(child)
        )
        described = {
            "anchor": section["ids"][0] if section["ids"] else "",
            "title": title.astext() if title is not None else "",
            "text": " ".join(text.split())[:_MOST_TEXT],
        }
        found.append(described)
    for entry in tree.findall(addnodes.desc_signature):
        if entry.get("ids"):
            found.append(
                {"anchor": entry["ids"][0], "title": entry["ids"][0], "text": ""}
            )
    return found


def write(app: Any, error: Exception | None) -> None:
    """Writes the sections of all pages as a script that the search page loads."""
    if error is not None or app.builder.format != "html":
        return
    pages = []
    for name in sorted(app.env.found_docs):
        tree = app.env.get_doctree(name)
        pages.append({"page": name, "sections": sections(tree)})
    told = json.dumps(pages, ensure_ascii=False, separators=(",", ":"))
    # A script and not a JSON file: it loads from a folder too, without a server.
    out = pathlib.Path(app.outdir, "_static", "search-pages.js")
    out.write_text(f"window.searchPages={told};\n", encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Registers the extension."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
