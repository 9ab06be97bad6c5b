"""Advice on what to write instead of names of TensorFlow that are not here."""

from __future__ import annotations

import importlib

from unisono._src.foundation.tensorflow_names import families, listing

PAGE = "docs/from-tensorflow.md"

# Where JAX may have a function of the same name, in the order of looking.
_JAX = {
    "": ("jax.numpy",),
    "bitwise": ("jax.numpy",),
    "image": ("jax.image",),
    "linalg": ("jax.numpy.linalg", "jax.scipy.linalg"),
    "math": ("jax.numpy", "jax.scipy.special"),
    "nn": ("jax.nn",),
    "signal": ("jax.numpy.fft", "jax.scipy.signal"),
}


def explain(path: str) -> str | None:
    """Returns the kind of a missing name and the advice for it, or None.

    Args:
        path: the dotted path without ``tf.``. For a name that TensorFlow does not have
            either the result is None.

    >>> print(explain("strings.split"))
    tf.strings.split is a TensorFlow function for text, which unisono does not have. Use
    the methods of Python's strings, ...
    """
    what = listing.kind(path)
    if what is None:
        return None
    purpose = families.find(listing.drop_v2(path)).purpose
    return (
        f"tf.{path} is a TensorFlow {what} for {purpose}, which unisono does not have. "
        f"{advise(path)}"
    )


def advise(path: str) -> str:
    """Returns the sentence that says what to write for a missing name.

    >>> advise("nn.ctc_loss")
    'Use optax.ctc_loss(logits, logit_paddings, labels, label_paddings).'
    >>> advise("math.cumprod")
    'Use jax.numpy.cumprod.'
    """
    path = listing.drop_v2(path)
    row = families.find(path)
    if row.path == path:
        return row.instead
    above, _, name = path.rpartition(".")
    for module in _JAX.get(above, ()):
        # Some of them are loaded for this question alone.
        if hasattr(importlib.import_module(module), name):
            return f"Use {module}.{name}."
    return row.instead
