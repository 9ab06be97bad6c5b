"""The libraries that take part in scopes; their integrations load on first use."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any, final

from unisono._src.foundation import library_hooks

_HERE = __name__.rpartition(".")[0]


@final
class _LazyScope:
    """A context manager that imports an integration and enters one of its own.

    Args:
        module: the module of the integration, below this folder.
        name: the name of the context manager in that module.
    """

    def __init__(self, module: str, name: str = "SCOPE") -> None:
        self._module, self._name = module, name

    @property
    def _scope(self) -> contextlib.AbstractContextManager[Any]:
        module = importlib.import_module(f"{_HERE}.{self._module}")
        scope: contextlib.AbstractContextManager[Any] = getattr(module, self._name)
        return scope

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._scope.__exit__(*exc)


@final
class _LazyKeeper(library_hooks.Keeper):
    """A keeper that imports an integration and asks its `KEEPER`.

    Args:
        module: the module of the integration, below this folder.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    @property
    def _keeper(self) -> library_hooks.Keeper:
        module = importlib.import_module(f"{_HERE}.{self._module}")
        keeper: library_hooks.Keeper = module.KEEPER
        return keeper

    def __getitem__(self, obj: Any) -> library_hooks.Held | dict[str, Any] | None:
        return self._keeper[obj]

    def make_forward(self, obj: Any) -> Any:
        return self._keeper.make_forward(obj)

    def prepare(self, obj: Any) -> None:
        self._keeper.prepare(obj)

    def watch(self, obj: Any, then: Callable[[], None]) -> None:
        self._keeper.watch(obj, then)


def _adopt_keras(obj: Any, strategy: Any) -> None:
    importlib.import_module(f"{_HERE}.keras.scope").adopt(obj, strategy)


def install() -> None:
    """Register Keras and Flax with scopes and checkpoints, without importing them."""
    library_hooks.register(
        library_hooks.Companion(
            "keras",
            _LazyScope("keras.scope"),
            # Keras has its stacks of scopes and of the layers that are being called
            # here, one per thread.
            (
                "keras.src.backend.common.global_state:GLOBAL_STATE_TRACKER",
                "keras.src.backend.common.global_state:GLOBAL_SETTINGS_TRACKER",
            ),
            _LazyKeeper("keras.saving"),
            _adopt_keras,
            _LazyScope("keras.scope", "INTRODUCTION"),
            _LazyScope("keras.scope", "TAPE"),
        )
    )
    library_hooks.register(
        library_hooks.Companion(
            "flax.nnx",
            _LazyScope("flax.scope"),
            keeper=_LazyKeeper("flax.saving"),
            tape=_LazyScope("flax.scope", "TAPE"),
        )
    )
