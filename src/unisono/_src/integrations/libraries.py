"""Which libraries take part in scopes; their integrations are loaded when needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, final

from unisono._src.foundation import library_hooks

_HERE = __name__.rpartition(".")[0]


@final
class _Scope:
    """Enters the scope of an integration, which is loaded the first time."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __enter__(self) -> None:
        importlib.import_module(f"{_HERE}.{self._module}").SCOPE.__enter__()

    def __exit__(self, *exc: Any) -> None:
        importlib.import_module(f"{_HERE}.{self._module}").SCOPE.__exit__(*exc)


@final
class _Keeper(library_hooks.Keeper):
    """The keeper of an integration, which is loaded the first time."""

    def __init__(self, module: str) -> None:
        self._module = module

    @property
    def _keeper(self) -> library_hooks.Keeper:
        module = importlib.import_module(f"{_HERE}.{self._module}")
        keeper: library_hooks.Keeper = module.KEEPER
        return keeper

    def __getitem__(self, obj: Any) -> library_hooks.Held | dict[str, Any] | None:
        return self._keeper[obj]

    def prepare(self, obj: Any) -> None:
        self._keeper.prepare(obj)

    def watch(self, obj: Any, then: Callable[[], None]) -> None:
        self._keeper.watch(obj, then)


def install() -> None:
    """Let scopes know of the libraries; imports none of them."""
    library_hooks.register(
        library_hooks.Companion(
            "keras",
            _Scope("keras.scope"),
            (
                "keras.src.backend.common.global_state:GLOBAL_STATE_TRACKER",
                "keras.src.backend.common.global_state:GLOBAL_SETTINGS_TRACKER",
            ),
            _Keeper("keras.saving"),
        )
    )
    library_hooks.register(
        library_hooks.Companion(
            "flax.nnx", _Scope("flax.scope"), keeper=_Keeper("flax.saving")
        )
    )
