"""Operators beside lists, whose results in TensorFlow are recorded.

Where TensorFlow is installed, ``python -m tests.unit.integrations.list_operands``
writes them to `list_operands.json`.
"""

import json
import pathlib

FILE = pathlib.Path(__file__).with_suffix(".json")

# In a case `f`, `h`, `i` and `b` are arrays of two floats, halves, integers and bools.
CASES = """
f + [1.5, 2] | [1.5, 2] + f | f - [1, 2] | [1, 2] - f | f * [3, 4.5] | [3, 4.5] * f
f / [2, 4] | [2, 4] / f | f // [2, 4] | [5, 4] // f | f % [2, 4] | [5, 4] % f
f ** [2, 3] | [2, 3] ** f | [[1, 2], [3, 4]] @ f[:, None]
f == [1, 5] | [1, 5] == f | f != [1, 5] | f < [1, 5] | f <= [1, 5] | f > [0, 5]
f >= [1, 5] | [1, 5] < f | f + (1, 2) | (1, 2) * f | f + [[1], [2]] | f[:0] + []
h + [1.5, 2] | h * [3, 4] | [0.1, 0.2] - h | h == [1, 2] | h / [3.0, 7.0]
i + [1, 2] | [5, 7] - i | i * (3, 4) | i // [2, 3] | [7, 9] % i | i == [1, 5]
i < [2, 2] | i + [1.5, 2] | i == [1.5, 2] | f + [True, False] | i + [True, False]
b & [True, True] | [False, True] | b | b ^ [True, True] | b == [True, True] | b + [1, 2]
f + ["x", "y"] | f + [[1], [1, 2]] | f + [i[0], 2.0] | f * [f[1], 2]
""".strip().replace("\n", " | ")


def cases():
    """Returns the cases; an operator ``|`` of bools stands between two lists."""
    found, rest = [], CASES.split(" | ")
    while rest:
        case = rest.pop(0)
        if case == "[False, True]":
            case += f" | {rest.pop(0)}"
        found.append(case)
    return found


def compute(tf, case):
    """Returns the type and the numbers of a case, or "error"."""
    arrays = {
        "f": tf.constant([1.0, 2.0]),
        "h": tf.constant([1.0, 2.0], tf.float16),
        "i": tf.constant([1, 2]),
        "b": tf.constant([True, False]),
    }
    try:
        found = eval(case, {"__builtins__": {}, "True": True, "False": False} | arrays)
    except Exception:
        return "error"
    return [found.numpy().dtype.name, found.numpy().tolist()]


if __name__ == "__main__":
    import tensorflow

    recorded = {case: compute(tensorflow, case) for case in cases()}
    FILE.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
