"""The element types that JAX has, and a warning where a program asks for another."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from typing import Any

import jax

# Frames of these folders are ours or JAX's, not the user's.
_LIBRARIES = tuple(
    os.path.dirname(sys.modules[name].__file__ or "") + os.sep
    for name in (__name__.partition(".")[0], "jax")
)


def usable_type(dtype: Any) -> Any:
    """Returns the type that JAX uses for a wanted type.

    Without JAX's 64-bit types this is another one for `int64` and `float64`. JAX would
    warn about that at a line of this library; the warning here names the user's line.

    >>> import numpy as np
    >>> usable_type(np.float32) is np.float32
    True
    """
    # JAX chooses the size for Python's types, as NumPy does, without a word.
    if any(dtype is t for t in (None, bool, int, float, complex)):
        return dtype
    found = jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
    if found == dtype:
        return dtype
    is_integer = str(found) in ("int32", "uint32")
    bits = " Sums and products that need more bits wrap around." if is_integer else ""
    warnings.warn(
        f"Explicitly requested dtype {jax.numpy.dtype(dtype)} is not available, and "
        f"will be truncated to dtype {found}.{bits} To enable more dtypes, set the "
        "jax_enable_x64 configuration option or the JAX_ENABLE_X64 shell environment "
        "variable. See https://github.com/jax-ml/jax#current-gotchas for more.",
        stacklevel=_find_user_level(),
    )
    return found


def _find_user_level() -> int:
    """Returns the `stacklevel` for which a warning of our caller names the user."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        level, frame = level + 1, frame.f_back
    return level
