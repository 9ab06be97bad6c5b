"""Tries the built documentation in Chromium.

usage: python docs/tools/browser.py SITE [--screenshots FOLDER]

It fails without a browser. It serves the site on this machine, opens every page, and
prints a line per check, with the browser's version and the date.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import http.server
import importlib.resources
import json
import pathlib
import shutil
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from playwright import sync_api

HERE = pathlib.Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PHONE = {"width": 360, "height": 740}
_DESK = {"width": 1280, "height": 900}
_PICTURED = (
    "index",
    "start/ten-minutes",
    "start/notebook",
    "from-tensorflow",
    "how-to/large-models",
    "concepts/index",
    "concepts/step",
    "performance/index",
    "reference/command-line",
    "reference/api/unisono.distribute",
)
# Findings of axe that fail the check.
_SERIOUS = ("serious", "critical")
_SCREEN = {"width": 1400, "height": 1000}
# The first words of blocks of code, titles and tables that do not fit their places.
_CUT_OFF = """selector => [...document.querySelectorAll(selector)].filter(
  e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.trim().slice(0, 40))"""
# Whether anything makes the page wider than the window.
_IS_WIDER = "() => document.documentElement.scrollWidth > window.innerWidth"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


class Site:
    """The built site, served on this machine, and a browser to look at it.

    Args:
        folder: the folder with the built pages.
        browser: the browser.
    """

    def __init__(self, folder: pathlib.Path, browser: sync_api.Browser) -> None:
        handler = functools.partial(QuietHandler, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.root = f"http://127.0.0.1:{self._server.server_port}/"
        self.browser = browser
        found = (p.relative_to(folder).as_posix() for p in folder.rglob("*.html"))
        self.pages = sorted(
            p for p in found if not p.startswith(("_static", "_modules"))
        )
        self.folder = folder

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()

    def open(self, theme: str = "light", size: dict[str, int] = _DESK) -> sync_api.Page:
        """Returns a new tab that notes errors and requests to other machines."""
        context = self.browser.new_context(
            viewport=size,  # type: ignore[arg-type]
            color_scheme=theme,  # type: ignore[arg-type]
            permissions=["clipboard-read", "clipboard-write"],
        )
        page = context.new_page()
        page.set_default_timeout(20_000)
        return page

    def url(self, page: str) -> str:
        """Returns the address of a page."""
        return self.root + page


def check_pages(site: Site) -> Iterator[str]:
    """Every page loads without errors, foreign requests, or broken links.

    At the width of a telephone none is wider than the window.
    """
    tab = site.open()
    noted: list[str] = []
    tab.on("console", lambda m: noted.extend([m.text] if m.type == "error" else []))
    tab.on("pageerror", lambda error: noted.append(str(error)))
    tab.on("request", lambda r: _note_foreign(site, r.url, noted))
    tab.on(
        "response",
        lambda r: noted.extend([f"{r.status} {r.url}"] if r.status >= 400 else []),
    )
    for page in site.pages:
        noted.clear()
        tab.goto(site.url(page))
        yield from (f"{page}: {text}" for text in noted)
        if "unisono" not in (tab.text_content(".footer-version") or ""):
            yield f"{page}: the version is missing"
        yield from _broken_links(site, tab, page)
    tab.context.close()


def _note_foreign(site: Site, url: str, noted: list[str]) -> None:
    if not url.startswith((site.root, "data:", "blob:")):
        noted.append(f"asks for {url}")


def _broken_links(site: Site, tab: sync_api.Page, page: str) -> Iterator[str]:
    links = tab.eval_on_selector_all("a[href]", "all => all.map(a => a.href)")
    for link in sorted(set(links)):
        if not link.startswith(site.root):
            continue
        path, _, anchor = link.removeprefix(site.root).partition("#")
        path = urllib.parse.unquote(path.partition("?")[0]) or "index.html"
        if not (site.folder / path).is_file():
            yield f"{page}: a link to {path}, which does not exist"
        elif anchor and not _has_anchor(
            site.folder / path, urllib.parse.unquote(anchor)
        ):
            yield f"{page}: a link to {path}#{anchor}, which does not exist"


@functools.cache
def _text(path: pathlib.Path) -> str:
    return path.read_text("utf-8")


def _has_anchor(path: pathlib.Path, anchor: str) -> bool:
    return anchor == "" or f'id="{anchor}"' in _text(path)


def check_narrow(site: Site) -> Iterator[str]:
    """No page scrolls sideways at 360 pixels."""
    tab = site.open(size=_PHONE)
    for page in site.pages:
        tab.goto(site.url(page))
        if tab.evaluate(_IS_WIDER):
            yield f"{page}: wider than {_PHONE['width']} pixels"
        for words in tab.evaluate(_CUT_OFF, "h1, h2"):
            yield f"{page}: the title {words!r} is cut off"
    tab.context.close()


def check_wide(site: Site) -> Iterator[str]:
    """No code, output or table is cut off at 1,400 pixels."""
    tab = site.open(size=_SCREEN)
    for page in site.pages:
        if page.startswith(("decisions/", "changelog")):
            continue
        tab.goto(site.url(page))
        cut = ".bd-article pre, .bd-article .pst-scrollable-table-container"
        for words in tab.evaluate(_CUT_OFF, cut):
            yield f"{page}: {words!r} is cut off"
    tab.context.close()


def check_search(site: Site) -> Iterator[str]:
    """Every question has a right page among its first three hits."""
    questions = json.loads((HERE / "questions.json").read_text("utf-8"))
    tab = site.open()
    tab.goto(site.url("search.html"))
    tab.wait_for_selector("html[data-search-ready]")
    for group in ("as users ask", "as readers of documentation ask"):
        for question, wanted in questions[group]:
            tab.fill("#search-words", question)
            tab.press("#search-words", "Enter")
            hits = tab.eval_on_selector_all(
                "#search-hits a", "all => all.map(a => a.dataset.page)"
            )
            if not set(hits[:3]) & set(wanted):
                yield f"“{question}” finds {hits[:5]}, not {wanted}"
    tab.context.close()


def check_search_box(site: Site) -> Iterator[str]:
    """The search of every page leads to hits, and a hit to its page."""
    tab = site.open()
    tab.goto(site.url("index.html"))
    tab.keyboard.press("Control+k")
    tab.keyboard.type("checkpoints")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#search-hits a")
    tab.click("#search-hits li:first-child a")
    tab.wait_for_load_state()
    if "heckpoint" not in tab.title():
        yield f"the first hit for checkpoints is {tab.title()}"
    tab.context.close()


def check_menus(site: Site) -> Iterator[str]:
    """Navigation works by mouse on a desk, and by keyboard on a telephone."""
    tab = site.open()
    tab.goto(site.url("index.html"))
    tab.click("header .bd-navbar-elements a:has-text('How to')")
    tab.click(".bd-sidebar-primary a:has-text('Checkpoints')")
    if not tab.url.endswith("how-to/checkpoints.html"):
        yield f"the menus led to {tab.url}"
    tab.context.close()
    tab = site.open(size=_PHONE)
    tab.goto(site.url("how-to/index.html"))
    tab.focus("button.primary-toggle")
    tab.keyboard.press("Enter")
    link = tab.locator("dialog a:has-text('Uneven data'):visible")
    link.first.wait_for()
    for _ in range(80):
        tab.keyboard.press("Tab")
        if "Uneven data" in str(
            tab.evaluate("document.activeElement.textContent.trim()")
        ):
            break
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/uneven-data.html")
    tab.context.close()


def check_themes(site: Site) -> Iterator[str]:
    """Pages follow the wish for light or dark, and the button changes it."""
    seen = {}
    for theme in ("light", "dark"):
        tab = site.open(theme)
        tab.goto(site.url("concepts/step.html"))
        seen[theme] = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        if theme == "light":
            tab.click("button.theme-switch-button:visible")
            tab.click("button.theme-change-button[data-mode=dark]:visible")
            if tab.evaluate("document.documentElement.dataset.theme") != "dark":
                yield "the button for light and dark does nothing"
        tab.context.close()
    if seen["light"] == seen["dark"]:
        yield f"light and dark are both {seen['light']}"


def check_copying(site: Site) -> Iterator[str]:
    """The button at a block copies its code, and nothing of prompts or output."""
    tab = site.open()
    tab.goto(site.url("start/ten-minutes.html"))
    tab.hover("div.highlight-python >> nth=0")
    tab.click("div.highlight-python button.copybtn >> nth=0")
    copied = tab.evaluate("navigator.clipboard.readText()")
    if not copied.startswith("import jax.numpy"):
        yield f"copying gave {copied[:60]!r}"
    tab.hover("div.highlight-console >> nth=0")
    tab.click("div.highlight-console button.copybtn >> nth=0")
    copied = tab.evaluate("navigator.clipboard.readText()")
    if not copied.startswith("unisono launch") or "\n" in copied.strip():
        yield f"copying a command gave {copied[:60]!r}"
    tab.context.close()


def check_accessibility(site: Site) -> Iterator[str]:
    """Axe has no serious finding on any page (the reference in light only)."""
    script = importlib.resources.files("axe_playwright_python") / "axe.min.js"
    source = script.read_text("utf-8")
    for theme in ("light", "dark"):
        tab = site.open(theme)
        for page in site.pages:
            # Pages of the reference are made alike, and are many.
            if page.startswith("reference/api/") and theme == "dark":
                continue
            tab.goto(site.url(page))
            tab.evaluate(source)
            found = tab.evaluate("axe.run({resultTypes: ['violations']})")
            for one in found["violations"]:
                if one["impact"] in _SERIOUS:
                    where = one["nodes"][0]["target"]
                    yield f"{page} ({theme}): {one['id']} at {where}: {one['help']}"
        tab.context.close()


def take_screenshots(site: Site, folder: pathlib.Path) -> None:
    """Writes pictures of some pages, wide and narrow, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        for size in (_DESK, _PHONE):
            tab = site.open(theme, size)
            for page in _PICTURED:
                tab.goto(site.url(f"{page}.html"))
                name = f"{page.replace('/', '_')}-{theme}-{size['width']}.png"
                tab.screenshot(path=str(folder / name))
            tab.goto(site.url("search.html?q=loss+is+N+times+too+large"))
            tab.wait_for_selector("#search-hits a")
            tab.screenshot(path=str(folder / f"search-{theme}-{size['width']}.png"))
            tab.context.close()


CHECKS: tuple[Callable[[Site], Iterator[str]], ...] = (
    check_pages,
    check_narrow,
    check_wide,
    check_search,
    check_search_box,
    check_menus,
    check_themes,
    check_copying,
    check_accessibility,
)


def _browser_path() -> str:
    for name in BROWSERS:
        path = shutil.which(name)
        if path:
            return path
    sys.exit(f"No browser: install one of {', '.join(BROWSERS)}, such as by apt-get.")


def main() -> None:
    """Runs all checks, or those that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--screenshots", type=pathlib.Path)
    given = parser.parse_args()
    if not (given.site / "index.html").exists():
        sys.exit(f"There is no site in {given.site}: make docs")
    path, failed = _browser_path(), 0
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        site = Site(given.site, browser)
        today = datetime.date.today().isoformat()
        print(
            f"Chromium {browser.version}, {today}, {len(site.pages)} pages", flush=True
        )
        if given.screenshots:
            take_screenshots(site, given.screenshots)
        for check in CHECKS:
            if given.only and check.__name__ not in given.only:
                continue
            said = (check.__doc__ or "").partition("\n")[0]
            found = list(check(site))
            failed += len(found)
            print(f"{'FAILED' if found else 'ok':7} {said}", flush=True)
            for text in found[:40]:
                print(f"        {text}", flush=True)
        site.close()
        browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
