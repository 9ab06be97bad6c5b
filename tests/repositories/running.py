"""Runs the programs of this folder, and compares what they print."""

import contextlib
import gc
import io
import os
import pathlib
import re
import runpy
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent / "programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
# The servers that it starts end with their process.
OWN_PROCESS = {"parameter_server"}
_IMPORT = re.compile(r"^(\s*(?:import|from) )tensorflow\b", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\binf\b|\bnan\b)")


def source(name, package):
    """Return the text of a program that imports a package in place of TensorFlow."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    return _IMPORT.sub(rf"\g<1>{package}", text)


def run(name, package, folder):
    """Return what a program prints, line by line.

    Args:
        name: the program.
        package: what it imports in place of TensorFlow.
        folder: where its text is written, because AutoGraph reads it.
    """
    path = pathlib.Path(folder) / f"{name}.py"
    path.write_text(source(name, package), encoding="utf-8")
    if name in OWN_PROCESS:
        done = subprocess.run(
            [sys.executable, str(path)], stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.splitlines()
    before, printed = dict(os.environ), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        gc.collect()  # Datasets that are gone end their threads.
        os.environ.clear()
        os.environ.update(before)
    return printed.getvalue().splitlines()


def split(line):
    """Return the words of a line with a mark for each number, and the numbers."""
    numbers = [float(x) for x in _NUMBER.findall(line)]
    return "".join(_NUMBER.sub("#", line).split()), numbers


def difference(mine, wanted):
    """Return what differs first between lines, or None.

    Numbers may differ by 1 in 10,000, or by 1 in the fifth decimal place.
    """
    if len(mine) != len(wanted):
        return f"{len(mine)} lines, not {len(wanted)}: {mine}"
    for one, other in zip(mine, wanted, strict=True):
        (words, numbers), (expected, given) = split(one), split(other)
        far = [
            a != b and abs(a - b) > 1e-5 + 1e-4 * abs(b)
            for a, b in zip(numbers, given, strict=False)
        ]
        if words != expected or len(numbers) != len(given) or any(far):
            return f"{one!r}, not {other!r}"
    return None
