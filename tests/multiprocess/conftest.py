import pytest

from tests.multiprocess import launcher as launchers


@pytest.fixture
def launcher(tmp_path):
    """A launcher whose test fails if a process or a temporary file is left."""
    made = launchers.Launcher(tmp_path)
    yield made
    made.check_nothing_is_left()
