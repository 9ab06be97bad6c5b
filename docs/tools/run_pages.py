"""Runs the code blocks of every page whose results are not stored.

usage: python docs/tools/run_pages.py [PAGE ...]

A page's results are stored under the text of its blocks, the sources of the package and
the versions of Python and JAX, so a page runs again when any of them changes.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Collection

import blocks
from blocks import Block

DOCS = pathlib.Path(__file__).parents[1]
ROOT = DOCS.parent
BUILD = ROOT / "build" / "docs"
RESULTS = BUILD / "results"
FOLDERS = BUILD / "pages"
_AT_ONCE = 2
_PAGE_SECONDS = 600
_MOST_FOREIGN = 0.15
_LINE = "{:42} {:>6} {:>8} {:>9}"


@dataclasses.dataclass(frozen=True)
class Page:
    """A page and its code blocks.

    Attributes:
        name: its path below ``docs`` without the ending.
        blocks: all of its code blocks.
    """

    name: str
    blocks: list[Block]

    @property
    def to_run(self) -> list[Block]:
        """The blocks that run."""
        return [b for b in self.blocks if b.is_code and not b.is_foreign]

    @property
    def starts_workers(self) -> bool:
        """Whether one of its blocks starts several workers."""
        return any(
            re.search(r"unisono launch|uni\.launch|ray\.init", b.text)
            for b in self.to_run
        )

    @property
    def stored_at(self) -> pathlib.Path:
        """The file of its results."""
        return RESULTS / f"{self.name.replace('/', '.')}.json"

    def key(self, platform: str) -> str:
        """Returns what the results depend on, as a digest."""
        told = [(b.language, sorted(b.words), b.settings, b.text) for b in self.to_run]
        return _digest(json.dumps([platform, told]).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def platform_key() -> str:
    """Returns a digest of the package's sources and of the versions it runs on."""
    whole = hashlib.sha256(sys.version.encode())
    whole.update(importlib.metadata.version("jax").encode())
    sources = sorted((ROOT / "src" / "unisono").rglob("*.py"))
    for path in (DOCS / "tools" / "page_program.py", *sources):
        whole.update(path.relative_to(ROOT).as_posix().encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()


def find_pages(wanted: Collection[str]) -> list[Page]:
    """Returns the pages of the given names, or all, that have code blocks."""
    found = []
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).with_suffix("").as_posix()
        is_page = not name.startswith(("tools/", "_", "reference/api/"))
        if name in wanted or (is_page and not wanted):
            found.append(Page(name, blocks.find(path.read_text("utf-8"), name)))
    return [page for page in found if page.blocks]


def stored(page: Page, platform: str) -> list[dict[str, str]] | None:
    """Returns the results of a page if they are stored and still hold."""
    if not page.to_run:
        return []
    if not page.stored_at.exists():
        return None
    kept = json.loads(page.stored_at.read_text("utf-8"))
    return kept["results"] if kept["key"] == page.key(platform) else None


def run(page: Page, platform: str) -> float:
    """Runs a page, stores its results and returns how long it took.

    Raises:
        RuntimeError: a block failed.
    """
    folder = FOLDERS / page.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    given, told = folder / ".blocks.json", folder / ".results.json"
    plain = [{**b.as_json(), "commands": blocks.commands(b.text)} for b in page.to_run]
    given.write_text(json.dumps({"page": page.name, "blocks": plain}), "utf-8")
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, DOCS / "tools" / "page_program.py", given.name, told.name],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=_PAGE_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    kept = {"key": page.key(platform), "results": json.loads(told.read_text("utf-8"))}
    RESULTS.mkdir(parents=True, exist_ok=True)
    page.stored_at.write_text(json.dumps(kept), "utf-8")
    return time.perf_counter() - begin


def _environment() -> dict[str, str]:
    scripts = os.path.dirname(sys.executable)
    return {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "EXAMPLES": str(ROOT / "examples"),
        "JAX_PLATFORMS": "cpu",
        "KERAS_BACKEND": "jax",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def main() -> None:
    """Runs what the command line names, or all that is not stored."""
    platform, named = platform_key(), sys.argv[1:]
    pages = find_pages(named)
    missing = [p for p in pages if named or stored(p, platform) is None]
    print(_LINE.format("page", "blocks", "foreign", "seconds"))
    failures = []
    for page in pages:
        if page not in missing:
            _tell(page, "stored")
    # Workers take one another for dead where they cannot compute for seconds, so pages
    # that start some run one at a time, and last.
    quiet = [page for page in missing if page.starts_workers]
    for group, width in (
        ([p for p in missing if p not in quiet], _AT_ONCE),
        (quiet, 1),
    ):
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            runs = {pool.submit(run, page, platform): page for page in group}
            for done in concurrent.futures.as_completed(runs):
                failures += _finish(runs[done], done)
    if failures:
        sys.exit("\n\n".join(failures))
    if not named:
        _count(pages)


def _finish(page: Page, done: concurrent.futures.Future[float]) -> list[str]:
    """Tells how a page went and returns its failure, if any, in a list."""
    try:
        _tell(page, f"{done.result():.1f}")
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        _tell(page, "FAILED")
        return [f"{page.name}: {error}"]
    return []


def _tell(page: Page, said: str) -> None:
    code = [b for b in page.blocks if b.is_code]
    foreign = sum(b.is_foreign for b in code)
    print(_LINE.format(page.name, len(code), foreign, said), flush=True)


def _count(pages: list[Page]) -> None:
    code = [b for page in pages for b in page.blocks if b.is_code]
    foreign = sum(b.is_foreign for b in code)
    whole = len(code) + sum(_cells(path) for path in DOCS.rglob("*.ipynb"))
    print(
        f"{whole} code blocks, {foreign} of other systems "
        f"({foreign / whole:.0%}, at most {_MOST_FOREIGN:.0%})."
    )
    if foreign > _MOST_FOREIGN * whole:
        sys.exit("Too many blocks are foreign: run more of them.")


def _cells(path: pathlib.Path) -> int:
    """Returns the number of code cells of a notebook, which Sphinx runs."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return sum(cell["cell_type"] == "code" for cell in cells)


if __name__ == "__main__":
    main()
