"""Configures hypothesis and pytest-timeout if they are installed."""

import importlib.util

HAS_TIMEOUT = importlib.util.find_spec("pytest_timeout") is not None

try:
    import hypothesis
except ModuleNotFoundError:  # A machine that only lends its GPU may lack it.
    pass
else:
    # The same examples every time, however slow the machine; `pytest
    # --hypothesis-profile=search` looks for new ones.
    _PATIENT = {
        "deadline": None,
        "suppress_health_check": [hypothesis.HealthCheck.too_slow],
    }
    hypothesis.settings.register_profile("same", derandomize=True, **_PATIENT)
    hypothesis.settings.register_profile("search", max_examples=1000, **_PATIENT)
    hypothesis.settings.load_profile("same")


def pytest_addoption(parser):
    """Accepts the setting of pytest-timeout if it is not installed.

    A test may then hang.
    """
    if not HAS_TIMEOUT:
        parser.addini("timeout", "seconds after which pytest-timeout fails a test")


def pytest_configure(config):
    """Accepts the marker of pytest-timeout if it is not installed."""
    if not HAS_TIMEOUT:
        config.addinivalue_line("markers", "timeout(seconds): see pytest-timeout")
