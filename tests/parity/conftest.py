"""What the tests of TensorFlow's behaviour share."""

import pytest

from tests.parity import programs


@pytest.fixture
def s():
    return programs.mirrored(2)
