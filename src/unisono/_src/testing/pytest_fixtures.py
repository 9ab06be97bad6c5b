"""The fixture `check_parity`, which fails a test over a difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unisono._src.testing import parity


@pytest.fixture
def check_parity() -> Callable[..., parity.ParityReport]:
    """`unisono.testing.check_parity`, which fails the test if something differs.

    Put ``pytest_plugins = ["unisono.testing.pytest_plugin"]`` in ``conftest.py``.
    """

    def check(*args: Any, **kwargs: Any) -> parity.ParityReport:
        report = parity.check_parity(*args, **kwargs)
        if not report:
            pytest.fail(str(report), pytrace=False)
        return report

    return check
