"""Keras on JAX: what `keras` has, and callbacks of unisono's own.

Keras is loaded when the first of its names is used.
"""

from unisono._src.integrations import keras_package as _keras_package

_names = _keras_package.Names("unisono.keras")
__getattr__ = _names.find
__dir__ = _names.list
_keras_package.install()

__all__ = ["callbacks"]
