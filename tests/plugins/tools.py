"""Settings of hypothesis and pytest-timeout, where they are installed."""

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
    hypothesis.settings.register_profile("search", **_PATIENT)
    hypothesis.settings.load_profile("same")


def pytest_addoption(parser):
    """Knows pytest-timeout's setting without it; then a test may hang."""
    if not HAS_TIMEOUT:
        parser.addini("timeout", "seconds after which pytest-timeout fails a test")


def pytest_configure(config):
    """Knows pytest-timeout's marker without it."""
    if not HAS_TIMEOUT:
        config.addinivalue_line("markers", "timeout(seconds): see pytest-timeout")
