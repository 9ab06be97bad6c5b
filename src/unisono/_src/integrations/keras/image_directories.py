"""Datasets of the image files of a directory, whose folders are classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.integrations.keras import directories
from unisono._src.ops.images import decoding, resizing

_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_METHODS = (
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian",
    "mitchellcubic",
)  # fmt: skip


def image_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: directories.Labels = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: int | Sequence[int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "tf",
    verbose: bool = True,
) -> Any:
    """Returns a dataset of the image files of a directory, as batches of float32.

    The arguments that are not listed are those of `text_dataset_from_directory`.

    Args:
        directory: has a folder for each class; its files are BMP, GIF, JPEG or PNG.
        labels: "inferred" from the folders, None, or a number for each file.
        label_mode: "int", "binary", "categorical" or None.
        class_names: the folders, in the order of their numbers.
        color_mode: "grayscale", "rgb" or "rgba", for 1, 3 or 4 channels.
        batch_size: how many images a batch has; None for single ones.
        image_size: the height and the width of all images.
        shuffle: whether the files come in a random order.
        seed: the same seed gives the same orders in every run.
        validation_split: which part of the files is for validation.
        subset: "training", "validation" or "both" of them, as a list of two datasets.
        interpolation: the method of `unisono.image.resize`.
        follow_links: whether folders that are links are read.
        crop_to_aspect_ratio: whether images are cut instead of stretched.
        pad_to_aspect_ratio: whether images get borders instead of being stretched.
        data_format: "channels_last", "channels_first", or None for Keras' own.
        format: "tf", for a dataset of unisono.
        verbose: whether to print how many files there are.

    Returns:
        A dataset with the attributes `class_names` and `file_paths`.

    Raises:
        ValueError: the arguments do not fit together, or there are no files.
    """
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    _check(color_mode, interpolation.lower(), tuple(size))
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError(
            "Only one of `pad_to_aspect_ratio`, `crop_to_aspect_ratio` can be set to "
            "`True`."
        )
    is_first = (data_format or keras.config.image_data_format()) == "channels_first"

    def load(path: bytes) -> np.ndarray:
        with open(os.fsdecode(path), "rb") as file:
            image: Any = decoding.decode_image(
                file.read(), _CHANNELS[color_mode], expand_animations=False
            )
        if crop_to_aspect_ratio:
            image = _crop(image, *size)
        if pad_to_aspect_ratio:
            height, width = size
            image = resizing.resize_with_pad(
                image, height, width, interpolation.lower()
            )
        else:
            image = resizing.resize(image, size, interpolation.lower())
        return np.moveaxis(image, -1, 0) if is_first else image

    request = directories.Request(
        directory, labels, label_mode, class_names, batch_size, shuffle, seed,
        validation_split, subset, follow_links, format, verbose,
    )  # fmt: skip
    return directories.make_datasets(request, _ENDINGS, load)


def _check(color_mode: str, method: str, size: tuple[int, ...]) -> None:
    """Raises `ValueError` unless images can be read and resized so."""
    if color_mode not in _CHANNELS:
        raise ValueError(
            f"`color_mode` must be one of {set(_CHANNELS)}. Received: {color_mode}"
        )
    if method not in _METHODS:
        raise ValueError(
            f"Argument `interpolation` should be one of {_METHODS}. Received: {method}"
        )
    if len(size) != 2:
        raise ValueError(f"`image_size` is a height and a width. Received: {size}")


def _crop(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns the largest middle part of an image that has the shape of a size."""
    own_height, own_width = image.shape[:2]
    high = max(min(int(own_width * height / width), own_height), 1)
    wide = max(min(int(own_height * width / height), own_width), 1)
    top, left = (own_height - high) // 2, (own_width - wide) // 2
    return image[top : top + high, left : left + wide]


publish("unisono.keras.utils", image_dataset_from_directory)
