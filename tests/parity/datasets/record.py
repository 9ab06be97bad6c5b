"""Writes expected.json: what TensorFlow returns for every program.

Run it where TensorFlow is installed, from the root of the repository:

    python -m tests.parity.datasets.record

TensorFlow is needed for this alone.
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


def main(chosen):
    """Runs all programs and writes the file, or shows those named like `chosen`."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 4
    )
    tf.get_logger().setLevel(logging.ERROR)
    results = {}
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
            print(name, json.dumps(results[name], indent=1))
    if not chosen:
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in results.items())
        EXPECTED.write_text(
            f'{{"tensorflow": "{tf.__version__}", "results": {{\n'
            + ",\n".join(lines)
            + "\n}}\n",
            encoding="utf-8",
        )
        print(f"{len(results)} programs, {EXPECTED.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
