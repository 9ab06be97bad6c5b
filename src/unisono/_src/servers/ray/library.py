"""The package Ray, or an error that says how to install it; and its private names.

The process of a node (`node_process`) does not load unisono, so it takes its one
private name of Ray by itself.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import Any

# Modules of Ray that are private, the names that are used of each, and what for.
PRIVATE = {
    "ray._raylet": (
        ("AuthenticationTokenLoader", "Config", "GcsClient"),
        "the token of a cluster: read anew, and tried before the program connects",
    ),
    "ray._private.services": (
        ("resolve_ip_for_localhost",),
        "replaced while a program connects: it would give up the loopback address",
    ),
    "ray._private.worker": (
        ("listen_error_messages",),
        "replaced while a program connects: it would print the logs of lost nodes",
    ),
}


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


def load_private(module: str) -> Any:
    """Returns one of the modules of `PRIVATE`; Ray 2.60 has all of them."""
    assert module in PRIVATE
    return importlib.import_module(module)
