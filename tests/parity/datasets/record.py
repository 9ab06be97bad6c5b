"""Writes expected.json: what TensorFlow returns for every program.

Run it where TensorFlow is installed, from the root of the repository:

    python -m tests.parity.datasets.record

Arguments choose the programs to record anew, by parts of their names. TensorFlow is
needed for this alone.
"""

import json
import logging
import os
import pathlib
import sys
import tempfile

from tests.parity.datasets import (
    kit,
    programs,  # noqa: F401
)

EXPECTED = pathlib.Path(__file__).parent / "expected.json"


def load():
    """Imports TensorFlow and gives it four devices."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    tf.get_logger().setLevel(logging.ERROR)
    return tf


def earlier(version):
    """Returns the results that the file has from this version of TensorFlow."""
    found = json.loads(EXPECTED.read_text(encoding="utf-8"))
    if found["tensorflow"] != version:
        raise SystemExit(
            f"{EXPECTED.name} is of TensorFlow {found['tensorflow']}, not {version}: "
            "record all programs."
        )
    return {name: found["results"].get(name) for name in kit.PROGRAMS}


def main(chosen):
    """Records the programs with a part of `chosen` in their names, or all of them."""
    tf = load()
    results = earlier(tf.__version__) if chosen else {}
    for name, program in sorted(kit.PROGRAMS.items()):
        if chosen and not any(part in name for part in chosen):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            try:
                results[name] = program.run(tf, pathlib.Path(tmp))
            except Exception as e:
                e.add_note(f"The program was {name}.")
                raise
        if chosen:
            print(name, json.dumps(results[name]))
    lines = (f"{json.dumps(k)}: {json.dumps(results[k])}" for k in sorted(results))
    EXPECTED.write_text(
        f'{{"tensorflow": "{tf.__version__}", "results": {{\n'
        + ",\n".join(lines)
        + "\n}}\n",
        encoding="utf-8",
    )
    print(f"{len(results)} programs, {EXPECTED.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
