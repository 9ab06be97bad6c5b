"""TensorFlow's names of element types, each for the NumPy type of the same elements."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

bfloat16 = np.dtype(jnp.bfloat16)
bool = np.dtype(np.bool_)
complex64 = np.dtype(np.complex64)
complex128 = np.dtype(np.complex128)
float16 = np.dtype(np.float16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
half = float16
double = float64
int8 = np.dtype(np.int8)
int16 = np.dtype(np.int16)
int32 = np.dtype(np.int32)
int64 = np.dtype(np.int64)
uint8 = np.dtype(np.uint8)
uint16 = np.dtype(np.uint16)
uint32 = np.dtype(np.uint32)
uint64 = np.dtype(np.uint64)
# TensorFlow's strings are `bytes` of any length, which NumPy keeps as objects.
string = np.dtype(np.object_)
