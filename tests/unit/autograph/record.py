"""Records what TensorFlow computes: ``python -m tests.unit.autograph.record``."""

import json
import pathlib

from tests.unit.autograph import programs

PATH = pathlib.Path(__file__).with_name("recorded.json")


def numbers(values):
    """Return results as numbers and lists of them."""
    return [v.numpy().tolist() if hasattr(v, "numpy") else v for v in values]


def main():
    import tensorflow

    found = {n: numbers(p(tensorflow)) for n, p in programs.PROGRAMS.items()}
    told = {"tensorflow": tensorflow.__version__, "programs": found}
    PATH.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
