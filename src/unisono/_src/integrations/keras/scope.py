"""The scope of Keras: patches, or a refusal if this Keras cannot be distributed."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import Any, final

import keras

from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches

# The first version of Keras whose internals the patches fit.
_OLDEST = (3, 13)
_HERE = __name__.rpartition(".")[0]


def check() -> None:
    """Raise if Keras is too old for strategies.

    Raises:
        RuntimeError: it is too old.
    """
    attribute_patches.check_version("Keras", keras, _OLDEST)


def find_obstacle() -> str | None:
    """Return why models of this Keras cannot be distributed, or None if they can."""
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


def adopt(obj: Any, strategy: Any) -> None:
    """Bring an object of Keras that was made outside every scope into a strategy.

    Raises:
        RuntimeError: models of this Keras cannot be distributed.
    """
    check()
    why = find_obstacle()
    if why is not None:
        raise RuntimeError(why)
    adoption = importlib.import_module(f"{_HERE}.adoption")
    training = importlib.import_module(f"{_HERE}.training")
    with strategy.scope():
        for model in adoption.adopt(obj, strategy):
            training.attach(model, strategy)


# Cached, because it is called for every scope and dataset.
@functools.cache
def _introduce() -> None:
    """Make Keras recognize datasets and metrics of unisono, if it runs on JAX."""
    if attribute_patches.is_new_enough(keras, _OLDEST) and find_obstacle() is None:
        importlib.import_module(f"{_HERE}.recognition").install()


def _wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of Keras variables that refuses to run in a scope."""

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if ambient.current().placement is not None:
            raise RuntimeError(find_obstacle())
        original(self, *args, **kwargs)

    return init


@functools.cache
def _refusals() -> attribute_patches.Patches:
    backend = importlib.import_module("keras.src.backend")
    return attribute_patches.Patches([(backend.Variable, "__init__", _wrap_init)])


@final
class _KerasScope:
    """A context manager that patches Keras; it may be entered again while it is open.

    A program may have loaded Keras without using it, as TensorFlow does. So with a
    Keras that cannot be distributed the scope opens, and variables are refused.
    """

    def _choose_scope(self) -> Any:
        if find_obstacle() is not None:
            return _refusals()
        # Imported only now: `patches` needs Keras' modules for the backend JAX.
        return importlib.import_module(f"{_HERE}.patches").SCOPE

    def __enter__(self) -> None:
        check()
        _introduce()
        self._choose_scope().__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._choose_scope().__exit__(*exc)


SCOPE = _KerasScope()


@final
class _Introduction:
    """A context manager that makes Keras recognize datasets and metrics of unisono."""

    def __enter__(self) -> None:
        _introduce()

    def __exit__(self, *exc: Any) -> None:
        pass  # Keras goes on recognizing them.


INTRODUCTION = _Introduction()


@final
class _KerasTape:
    """A context manager for gradient tapes; without effect if Keras has no JAX."""

    def _choose(self) -> Any:
        if not attribute_patches.is_new_enough(keras, _OLDEST) or find_obstacle():
            return contextlib.nullcontext()
        return importlib.import_module(f"{_HERE}.patches").TAPE

    def __enter__(self) -> None:
        self._choose().__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._choose().__exit__(*exc)


TAPE = _KerasTape()
