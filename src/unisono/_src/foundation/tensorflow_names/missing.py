"""Advice on what to write instead of names of TensorFlow that are not here."""

from __future__ import annotations

import importlib

from unisono._src.foundation.tensorflow_names import families, listing, version_1

PAGE = "docs/from-tensorflow.md"

# Where JAX may have a function of the same name, in the order of looking.
_JAX = {
    "": ("jax.numpy",),
    "bitwise": ("jax.numpy",),
    "dtypes.experimental": ("jax.numpy",),
    "experimental": ("jax.numpy",),
    "experimental.numpy": ("jax.numpy",),
    "image": ("jax.image",),
    "linalg": ("jax.numpy.linalg", "jax.scipy.linalg"),
    "math": ("jax.numpy", "jax.scipy.special"),
    "math.special": ("jax.scipy.special",),
    "nn": ("jax.nn",),
    "signal": ("jax.numpy.fft", "jax.scipy.signal"),
}
# Modules whose functions Keras has under the same names.
_KERAS = ("metrics", "optimizers")
_VERSION_1 = "compat.v1."


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
    >>> advise("compat.v1.log")
    'Write tf.math.log, the name of TensorFlow 2.'
    """
    path = listing.drop_v2(path)
    row = families.find(path)
    if row.path == path:
        return row.instead
    above, _, name = path.rpartition(".")
    new = _find_new_name(path)
    if new:
        return f"Write tf.{new}, the name of TensorFlow 2."
    if above in _KERAS:
        return f"Use unisono.keras.{path}."
    for module in _JAX.get(above, ()):
        # Some of them are loaded for this question alone.
        if hasattr(importlib.import_module(module), name):
            return f"Use {module}.{name}."
    return row.instead


def _find_new_name(path: str) -> str | None:
    """Returns the name that one of TensorFlow 1 has in TensorFlow 2, if it has one."""
    if not path.startswith(_VERSION_1) or families.find(path).path != "compat.v1":
        return None
    old = path.removeprefix(_VERSION_1)
    return version_1.RENAMED.get(old, old if listing.kind(old) else None)
