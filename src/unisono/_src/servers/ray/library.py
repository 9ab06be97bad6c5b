"""The package Ray, or an error that says how to install it."""

from __future__ import annotations

import os
import sys
import types
from typing import Any


def load() -> types.ModuleType:
    """Returns the module ``ray``.

    Raises:
        ModuleNotFoundError: Ray is not installed; the message says what to do.
    """
    before = None if "ray" in sys.modules else dict(os.environ)
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            "Parameter servers in processes of their own need Ray, which is not "
            "installed: `pip install 'unisono[ray]'`. To try a program without it, "
            "pass carrier='threads' to ParameterServerStrategy.",
            name="ray",
        ) from None
    if before is not None:
        # Ray leaves variables there for processes that it might start from this one.
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
    found: types.ModuleType = ray
    return found


def load_native() -> Any:
    """Returns Ray's native module, with functions that Ray's Python lacks."""
    # Private, and all that has them; Ray 2.60 has it.
    from ray import _raylet

    return _raylet
