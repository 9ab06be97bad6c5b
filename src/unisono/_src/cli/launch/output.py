"""Writes the output of workers to this process's output, or to a file each."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, final

from unisono._src.cli.launch import worker_process


@final
class Display:
    """Shows the progress of workers on a terminal, below all lines."""

    def __init__(self) -> None:
        import rich.console
        import rich.progress

        self._console = rich.console.Console(stderr=True)
        self._progress = rich.progress.Progress(
            rich.progress.SpinnerColumn(),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[steps]}"),
            rich.progress.TimeElapsedColumn(),
            console=self._console,
            transient=True,
            # `WorkerOutput.show` decides what goes above the display.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: Any = self._progress.add_task("", total=None, steps="")
        self._progress.start()

    def show(self, text: str) -> None:
        """Writes a line above the display."""
        import rich.text

        self._console.print(rich.text.Text.from_ansi(text), soft_wrap=True)

    def update(self, workers: Sequence[worker_process.WorkerProcess]) -> None:
        """Shows the slowest worker's step, and how many workers run."""
        done = sum(w.code is not None for w in workers)
        # Those that serve a chief have no steps of their own.
        counting = [w for w in workers if not w.command.serves]
        kind = "workers" if len(counting) == len(workers) else "tasks"
        steps = [w.step for w in counting if w.step is not None]
        totals = [w.total for w in counting if w.total is not None]
        step = min(steps) if len(steps) == len(counting) else None
        total = max(totals) if totals and step is not None else None
        of = "" if total is None else f"/{total:,}"
        self._progress.update(
            self._task,
            description=f"{len(workers) - done} of {len(workers)} {kind} running",
            completed=step if total else done,
            total=total or len(workers),
            steps="" if step is None else f"step {step:,}{of}",
        )

    def close(self) -> None:
        """Removes the display from the terminal."""
        self._progress.stop()


@final
class WorkerOutput:
    """Writes workers' lines and the launcher's notes.

    Args:
        directory: a directory for each worker's lines, in a file that is named by its
            task, such as ``worker-0.log`` or ``chief-0.log``; only notes are shown
            then.
        quiet: whether nothing is shown.
        display: a progress display, on a terminal.
    """

    def __init__(
        self,
        directory: pathlib.Path | None = None,
        quiet: bool = False,
        display: Display | None = None,
    ) -> None:
        self._directory = directory
        self._quiet = quiet
        self._display = display
        self._files: dict[tuple[str, int], IO[str]] = {}
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)

    def record(self, line: worker_process.Line) -> None:
        """Writes a worker's line to its file, if there are files."""
        if self._directory is not None:
            print(line.text, file=self._file(line.worker.command), flush=True)

    def show_line(self, line: worker_process.Line) -> None:
        """Shows a worker's line, unless it is in a file."""
        if self._directory is None:
            self.show(f"[{line.worker.name}] {line.text}", line.stream)

    def _file(self, command: worker_process.Command) -> IO[str]:
        assert self._directory is not None
        # The chief, a parameter server and a worker may have the same index.
        task = (command.job, command.index)
        if task not in self._files:
            path = self._directory / f"{command.job}-{command.index}.log"
            self._files[task] = path.open("w", encoding="utf-8")
        return self._files[task]

    def note(self, text: str) -> None:
        """Shows a note about the whole group, and writes it to all files."""
        self.show(f"unisono: {text}", "err")
        for file in self._files.values():
            print(f"unisono: {text}", file=file, flush=True)

    def show(self, text: str, stream: str) -> None:
        """Writes a line to standard output or error, above the display if there is one.

        Standard output that is no terminal gets its lines directly.
        """
        if self._quiet:
            return
        if self._display is not None and (stream == "err" or sys.stdout.isatty()):
            self._display.show(text)
        else:
            print(text, file=sys.stdout if stream == "out" else sys.stderr, flush=True)

    def show_progress(self, workers: Sequence[worker_process.WorkerProcess]) -> None:
        """Shows how far the workers are, if there is a display."""
        if self._display is not None:
            self._display.update(workers)

    def close(self) -> None:
        """Removes the display, and closes the files."""
        if self._display is not None:
            self._display.close()
        for file in self._files.values():
            file.close()
        self._files.clear()


@contextlib.contextmanager
def open_output(
    directory: pathlib.Path | None, quiet: bool = False, plain: bool = False
) -> Iterator[WorkerOutput]:
    """Yields an output, with a display on a terminal, and closes it at the end."""
    shows = sys.stderr.isatty() and not plain and not quiet
    out = WorkerOutput(directory, quiet, Display() if shows else None)
    try:
        yield out
    finally:
        out.close()
