"""Keras 3 on JAX; the only modules that import Keras."""

from unisono._src.integrations.keras import backend_choice

# Before any module of this package imports Keras, which asks for its backend only then.
backend_choice.choose()
