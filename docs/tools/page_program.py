"""Runs the blocks of one page as one program and writes down what they printed.

usage: python page_program.py BLOCKS.json RESULTS.json, in the page's folder

Nothing is set up for it, so a page has to say all that a reader must write.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import json
import linecache
import os
import pathlib
import subprocess
import sys
import traceback
from typing import Any

_CHECKS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_COMMAND_SECONDS = 300
_PLAIN = {"COLUMNS": "88", "TERM": "dumb", "NO_COLOR": "1"}
_COLOURED = {"COLUMNS": "88", "TERM": "xterm-256color", "FORCE_COLOR": "1"}


class PageError(Exception):
    """A block of the page failed, or printed something else than the page says."""


class PageProgram:
    """Runs blocks one after the other with common names.

    Args:
        page: the name of the page, for messages.
    """

    def __init__(self, page: str) -> None:
        self._page = page
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._checker = doctest.OutputChecker()

    def run(self, block: dict[str, Any]) -> dict[str, str]:
        """Runs a block and returns what the page shows of it."""
        language, settings = block["language"], block["settings"]
        if language == "python" and "file" in settings:
            ast.parse(block["text"])
            path = pathlib.Path(settings["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"] + "\n", encoding="utf-8")
            return {}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            shown: dict[str, str] = getattr(self, f"_run_{language}")(block)
        if language == "python" and "show" in block["words"]:
            shown.setdefault("text", printed.getvalue())
        return shown

    def _where(self, block: dict[str, Any]) -> str:
        return f"docs/{self._page}.md:{block['line']}"

    def _run_python(self, block: dict[str, Any]) -> dict[str, str]:
        expected = block["settings"].get("raises")
        try:
            value = self._execute(block)
        except Exception as error:
            if type(error).__name__ != expected:
                raise PageError(
                    f"{self._where(block)}: {traceback.format_exc()}"
                ) from error
            return {"text": f"{expected}: {error}"}
        if expected:
            raise PageError(f"{self._where(block)}: {expected} was not raised.")
        if "html" in block["words"]:
            return {"html": value._repr_html_()}
        if "curves" in block["words"]:
            plain = {name: [float(v) for v in values] for name, values in value.items()}
            return {"curves": json.dumps(plain)}
        return {}

    def _execute(self, block: dict[str, Any]) -> Any:
        """Runs the statements and returns the value of a last expression, if any."""
        text, name = block["text"] + "\n", f"<{self._where(block)}>"
        # So that tracebacks and `inspect` find the lines.
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        tree = ast.parse(text, name)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self._names)
        if last is None:
            return None
        return eval(compile(ast.Expression(last.value), name, "eval"), self._names)

    def _run_pycon(self, block: dict[str, Any]) -> dict[str, str]:
        where = self._where(block)
        test = doctest.DocTestParser().get_doctest(
            block["text"] + "\n", self._names, where, where, block["line"]
        )
        runner = doctest.DocTestRunner(self._checker, False, _CHECKS)
        report = io.StringIO()
        failed = runner.run(test, out=report.write, clear_globs=False).failed
        if failed:
            raise PageError(f"{where}: {report.getvalue()}")
        self._names.update(test.globs)
        return {}

    def _run_console(self, block: dict[str, Any]) -> dict[str, str]:
        shown = []
        pairs, is_picture = block["commands"], "picture" in block["words"]
        for number, (command, expected) in enumerate(pairs):
            is_last = number == len(pairs) - 1
            code = int(block["settings"].get("exit", 0)) if is_last else 0
            output = self._command(command, code, self._where(block), is_picture)
            # Whatever was printed matches a command whose output is not in the page.
            if expected.strip() and not self._checker.check_output(
                expected.strip() + "\n", output.strip() + "\n", _CHECKS
            ):
                raise PageError(f"{self._where(block)}: $ {command}\n{output}")
            shown.append(f"$ {command}\n{output.rstrip()}".rstrip())
        if is_picture:
            return {"command": command, "picture": output}
        return {"console": "\n".join(shown)} if "show" in block["words"] else {}

    def _command(
        self, command: str, code: int, where: str, has_colours: bool = False
    ) -> str:
        environment = {**os.environ, **(_COLOURED if has_colours else _PLAIN)}
        environment.pop("NO_COLOR" if has_colours else "FORCE_COLOR", None)
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_COMMAND_SECONDS,
            env=environment,
        )
        if done.returncode != code:
            raise PageError(
                f"{where}: $ {command}\nended with {done.returncode}, not {code}:\n"
                f"{done.stdout}"
            )
        return done.stdout


def main() -> None:
    """Runs the page that the command line names."""
    given = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    program = PageProgram(given["page"])
    try:
        results = [program.run(block) for block in given["blocks"]]
    except PageError as error:
        sys.exit(str(error))
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
