"""Keras 3 on JAX; the only modules that import Keras."""
