"""TensorFlow's names of element types, each for the NumPy type of the same elements."""

import jax.numpy as _jnp
import numpy as _np

bfloat16 = _np.dtype(_jnp.bfloat16)
bool = _np.dtype(_np.bool_)
complex64 = _np.dtype(_np.complex64)
complex128 = _np.dtype(_np.complex128)
float16 = _np.dtype(_np.float16)
float32 = _np.dtype(_np.float32)
float64 = _np.dtype(_np.float64)
half = float16
double = float64
int8 = _np.dtype(_np.int8)
int16 = _np.dtype(_np.int16)
int32 = _np.dtype(_np.int32)
int64 = _np.dtype(_np.int64)
uint8 = _np.dtype(_np.uint8)
uint16 = _np.dtype(_np.uint16)
uint32 = _np.dtype(_np.uint32)
uint64 = _np.dtype(_np.uint64)
# TensorFlow's strings are `bytes` of any length, which NumPy keeps as objects.
string = _np.dtype(_np.object_)
