"""After how many steps copies are compared."""

import pytest

from unisono._src.cluster import replica_checks


@pytest.mark.parametrize("text, steps", [("", 0), ("0", 0), ("100", 100), (" 7 ", 7)])
def test_the_environment_says_it(monkeypatch, text, steps):
    monkeypatch.setenv("UNISONO_CHECK_REPLICAS", text)
    assert replica_checks.check_interval() == steps
    assert replica_checks.check_interval(3) == 3


@pytest.mark.parametrize("text", ["-1", "1.5", "x" * 500, "٣", "1e3", "9" * 40])
def test_what_is_no_number_of_steps_is_refused(monkeypatch, text):
    monkeypatch.setenv("UNISONO_CHECK_REPLICAS", text)
    with pytest.raises(ValueError, match="--check-replicas") as error:
        replica_checks.check_interval()
    assert len(str(error.value)) < 400
