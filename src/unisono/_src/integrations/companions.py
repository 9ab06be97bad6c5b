"""Which libraries take part in scopes; their integrations are loaded when needed."""

from __future__ import annotations

import importlib
from typing import Any

from unisono._src import companions

_HERE = __name__.rpartition(".")[0]


class _Scope:
    """Enters the scope of an integration, which is loaded the first time."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> None:
        importlib.import_module(f"{_HERE}.{self._module}").SCOPE.__enter__()

    def __exit__(self, *exc: Any) -> None:
        importlib.import_module(f"{_HERE}.{self._module}").SCOPE.__exit__(*exc)


def install() -> None:
    """Let scopes know of the libraries; imports none of them."""
    companions.register(
        companions.Companion(
            "keras",
            _Scope("keras_scope"),
            (
                "keras.src.backend.common.global_state:GLOBAL_STATE_TRACKER",
                "keras.src.backend.common.global_state:GLOBAL_SETTINGS_TRACKER",
            ),
        )
    )
    companions.register(companions.Companion("flax.nnx", _Scope("flax_scope")))
