"""Flax NNX; the only modules that import Flax."""
