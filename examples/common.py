"""Loads the images of digits that the examples train on."""

import pathlib

import numpy as np

DATA = pathlib.Path(__file__).parent / "data" / "digits.npz"


def load_digits(count):
    """Returns images as 8×8 pixels from 0 to 16, and their labels."""
    with np.load(DATA, allow_pickle=False) as arrays:
        images = arrays["images"][..., None]
        labels = arrays["labels"].astype(np.int32)
    return images[:count], labels[:count]
