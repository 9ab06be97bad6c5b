"""The package Ray, or an error that says how to install it."""

from __future__ import annotations

import types
from typing import Any


def load() -> types.ModuleType:
    """Returns the module ``ray``.

    Raises:
        ModuleNotFoundError: Ray is not installed; the message says what to do.
    """
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
    found: types.ModuleType = ray
    return found


def load_native() -> Any:
    """Returns Ray's native module, which has what Ray's own Python lacks."""
    import ray._raylet

    return ray._raylet  # noqa: SLF001
