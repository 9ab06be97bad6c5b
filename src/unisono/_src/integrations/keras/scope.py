"""What a scope means to the Keras that is loaded."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, final

import keras

from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches

_OLDEST = (3, 13)
_HERE = __name__.rpartition(".")[0]


def check() -> None:
    """Raise if this is a Keras that strategies cannot work with.

    Raises:
        RuntimeError: it is too old.
    """
    attribute_patches.check_version("Keras", keras, _OLDEST)


def obstacle() -> str | None:
    """Why this Keras' models cannot be distributed; None if they can."""
    if keras.backend.backend() != "jax":
        return (
            f"Keras runs on the backend {keras.backend.backend()!r}, where a strategy "
            "of unisono cannot distribute it. Set the environment variable "
            "KERAS_BACKEND=jax before keras is imported."
        )
    if importlib.import_module("keras.src.backend.config").is_nnx_enabled():
        return (
            "Keras was told to make its layers NNX modules, whose variables a strategy "
            "cannot place. Unset KERAS_NNX_ENABLED, or use Flax NNX itself."
        )
    return None


def _refusing(original: Callable[..., None]) -> Callable[..., None]:
    """`__init__` of a variable that cannot be placed."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if ambient.current().placement is not None:
            raise RuntimeError(obstacle())
        original(self, *args, **kwargs)

    return init


@functools.cache
def _refusals() -> attribute_patches.Patches:
    backend = importlib.import_module("keras.src.backend")
    return attribute_patches.Patches([(backend.Variable, "__init__", _refusing)])


@final
class _Scope:
    """Context manager; may be entered again and again, in several threads.

    A program may have loaded a Keras that cannot be distributed without using it, as
    TensorFlow does. So what is refused then is a variable, not the scope.
    """

    def _block(self) -> Any:
        if obstacle() is not None:
            return _refusals()
        return importlib.import_module(f"{_HERE}.patches").SCOPE

    def __enter__(self) -> None:
        check()
        self._block().__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._block().__exit__(*exc)


SCOPE = _Scope()
