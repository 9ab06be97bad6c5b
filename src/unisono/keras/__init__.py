"""Keras on JAX: the names of `keras`, and some callbacks of unisono.

Keras is loaded when you use one of its names for the first time.
"""

from unisono._src.integrations import keras_package as _keras_package

_names = _keras_package.Names("unisono.keras")
__getattr__ = _names.find
__dir__ = _names.list
_keras_package.install()

__all__ = ["callbacks"]
