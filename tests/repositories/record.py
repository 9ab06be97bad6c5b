"""Records what the programs print with TensorFlow, or compares that with unisono here.

    python -m tests.repositories.record --tensorflow PYTHON [NAME …]

PYTHON is an interpreter that has TensorFlow; each program runs in a process of its own,
as it is. Without names all programs are recorded.
"""

import argparse
import json
import os
import pathlib
import subprocess

from tests.repositories import running

PATH = pathlib.Path(__file__).with_name("recorded.json")
# The devices that the tests of unisono have.
_START = """
import runpy, sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 8,
)
if sys.argv[1] == "version":
    print(tf.__version__)
else:
    runpy.run_path(sys.argv[1], run_name="__main__")
"""


def _run(python, argument):
    done = subprocess.run(
        [python, "-u", "-c", _START, argument],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{argument} failed:\n{done.stderr[-3000:]}")
    return done.stdout.splitlines()


def main():
    """Write `recorded.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensorflow", required=True, metavar="PYTHON")
    parser.add_argument("names", nargs="*", default=running.PROGRAMS)
    asked = parser.parse_args()
    found = json.loads(PATH.read_text())["programs"] if PATH.exists() else {}
    for name in asked.names:
        found[name] = _run(asked.tensorflow, str(running.FOLDER / f"{name}.py"))
        print(name, len(found[name]), "lines")
    told = {
        "tensorflow": _run(asked.tensorflow, "version")[-1],
        "programs": {name: found[name] for name in running.PROGRAMS if name in found},
    }
    PATH.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
