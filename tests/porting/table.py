"""Records the programs with TensorFlow, compares their ports, and prints the table."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

from tests.porting import programs
from unisono._src.testing import porting, recorded_runs, recorder, recordings

STORED = pathlib.Path(__file__).parent / "recordings"


def folder_of(name: str, root: pathlib.Path = STORED) -> pathlib.Path:
    """Returns the folder of a program's recording."""
    return root / name.replace(" ", "_")


def record(name: str, python: str, root: pathlib.Path) -> str:
    """Records a program with a Python that has TensorFlow, and returns what it said."""
    program = programs.PROGRAMS[name]
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "train.py"
        script.write_text(program.text)
        command = [python, recorder.__file__, "--steps=3"]
        command += [f"--step={program.step}"] if program.step else []
        command += [str(folder_of(name, root)), str(script)]
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        environment |= {"TF_USE_LEGACY_KERAS": "1"} if program.is_old else {}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return done.stdout


def compare(
    text: str, name: str, root: pathlib.Path = STORED, **options: str
) -> porting.PortReport:
    """Compares a port with the recording of a program."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "train.py"
        script.write_text(text)
        files = pathlib.Path(folder) / "files"
        files.mkdir()
        path = folder_of(name, root)
        runner = recorded_runs.PortRunner(
            script, [], path, recordings.read(path), options, None, files
        )
        return porting.compare_with_recording(runner)


def is_found(mistake: programs.Mistake, report: porting.PortReport) -> bool:
    """Whether a report names the right place."""
    first = report.differences[0] if report.differences else None
    return not report and first is not None and first.kind in mistake.kind.split("|")


def main(python: str | None, root: pathlib.Path) -> None:
    """Prints the table."""
    for name in programs.PROGRAMS if python else ():
        print(name, record(name, str(python), root).splitlines()[1], flush=True)
    equal = 0
    for name in programs.RIGHT:
        report = compare(programs.PROGRAMS[name].port(), name, root)
        equal += bool(report)
        largest = max(size for size, _ in report.course)
        print(
            f"| {name} | {'the same' if report else report} | {largest:.1e} |",
            flush=True,
        )
    placed = named = 0
    for mistake in programs.MISTAKES:
        report = compare(mistake.port(), mistake.program, root)
        placed += is_found(mistake, report)
        code = report.cause.code if report.cause else "none"
        named += code == mistake.cause
        first = report.differences[0] if report.differences else "nothing"
        print(f"| {mistake.name} | {first} | {code} |", flush=True)
    count = len(programs.MISTAKES)
    print(f"{equal} of {len(programs.RIGHT)} programs are the same.")
    print(
        f"{placed} of {count} mistakes found at the right place, {named} named right."
    )
    if equal < len(programs.RIGHT) or placed < count - 1:
        sys.exit(1)
