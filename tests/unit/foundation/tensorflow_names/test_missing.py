"""A missing name says what to write for it, and not for its like."""

import pytest

import unisono as tf
from unisono._src.cli.check import package_names
from unisono._src.foundation.tensorflow_names import families, listing, missing

# Families whose row is as good for each of their names.
_ALIKE = ("sparse", "ragged", "experimental.dtensor", "feature_column", "queue", "sets")


def test_a_name_of_tensorflow_1_says_the_new_one():
    with pytest.raises(AttributeError, match=r"Write tf\.math\.log, the name of Tens"):
        getattr(tf.compat.v1, "log")  # noqa: B009
    assert missing.advise("compat.v1.reduce_sum").startswith("Write tf.reduce_sum,")
    assert missing.advise("compat.v1.math.igamma").startswith("Write tf.math.igamma,")
    assert missing.advise("compat.v1.Session") == "Call the function itself."


def test_functions_of_numpy_and_keras_are_named_themselves():
    assert missing.advise("experimental.numpy.kron") == "Use jax.numpy.kron."
    assert missing.advise("math.special.spence") == "Use jax.scipy.special.spence."
    assert missing.advise("optimizers.Lamb") == "Use unisono.keras.optimizers.Lamb."


def test_few_names_get_the_advice_for_all_tensors():
    kinds, _ = listing._read()
    general = [
        path
        for path, kind in kinds.items()
        if kind in ("class", "function", "value")
        and package_names.find(path) is package_names.NOTHING
        and missing.advise(path) == families.find("").instead
        and not path.startswith(("keras.", "ragged_", *_ALIKE))
    ]
    assert not general
