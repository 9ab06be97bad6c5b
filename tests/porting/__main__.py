"""``python -m tests.porting [--tensorflow PYTHON [--write]]``: ports and originals."""

import argparse
import pathlib
import tempfile

from tests.porting import table

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--tensorflow", metavar="PYTHON", help="a Python that has it")
parser.add_argument("--write", action="store_true", help="keep the recordings")
asked = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    is_stored = asked.write or not asked.tensorflow
    table.main(asked.tensorflow, table.STORED if is_stored else pathlib.Path(folder))
