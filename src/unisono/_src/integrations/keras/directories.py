"""Datasets of the texts or images of a directory, whose folders are classes.

Which files come, in which order, and which are for validation is as in Keras; Keras'
own functions need TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, final

import keras
import numpy as np

from unisono._src.foundation import dtypes
from unisono._src.foundation.public_names import publish
from unisono._src.input.api.dataset import Dataset
from unisono._src.input.plan import nodes
from unisono._src.input.stages import argument_checks, mapping
from unisono._src.ops.images import decoding, resizing
from unisono._src.ops.text import arrays

# "inferred" from the folders, or a number for each file in the order of their paths.
Labels = str | Sequence[int] | None


@final
class DirectoryDataset(Dataset):
    """A dataset of the files of a directory.

    Attributes:
        class_names: the names of the classes, in the order of their numbers; None if
            there are no labels.
        file_paths: the files, in the order before the dataset's own shuffle.
    """

    def __init__(
        self, node: nodes.Node, class_names: list[str] | None, file_paths: list[str]
    ) -> None:
        super().__init__(node)
        self.class_names, self.file_paths = class_names, file_paths


@final
class Request(NamedTuple):
    """The arguments that all functions of directories share; see them for each."""

    directory: str | os.PathLike[str]
    labels: Labels
    label_mode: str | None
    class_names: Sequence[str] | None
    batch_size: int | None
    shuffle: bool
    seed: int | None
    validation_split: float | None
    subset: str | None
    follow_links: bool
    format: str
    verbose: bool

    def check(self) -> None:
        """Raises `ValueError` unless the arguments fit together."""
        if self.label_mode not in ("int", "categorical", "binary", None):
            raise ValueError(
                '`label_mode` argument must be one of "int", "categorical", "binary", '
                f"or None. Received: label_mode={self.label_mode}"
            )
        is_list = isinstance(self.labels, (list, tuple))
        if self.labels not in ("inferred", None) and not is_list:
            raise ValueError(
                '`labels` must be "inferred", None, or a list of a number for each '
                f"file. Received: labels={self.labels}"
            )
        has_classes = self.labels == "inferred" and self.label_mode is not None
        if self.class_names is not None and not has_classes:
            raise ValueError('`class_names` can only be given if `labels="inferred"`.')
        if self.format != "tf":
            raise ValueError(
                f'`format` must be "tf" here, for a dataset of unisono. Received: '
                f"format={self.format}. Keras' own functions make those of Grain."
            )
        self._check_split()

    def _check_split(self) -> None:
        split, subset = self.validation_split, self.subset
        if split and not 0 < split < 1:
            raise ValueError(
                f"`validation_split` must be between 0 and 1, received: {split}"
            )
        if bool(split) != bool(subset):
            raise ValueError(
                "If `subset` is set, `validation_split` must be set, and inversely."
            )
        if subset not in ("training", "validation", "both", None):
            raise ValueError(
                '`subset` must be either "training", "validation" or "both", received: '
                f"{subset}"
            )
        if split and self.shuffle and self.seed is None:
            raise ValueError(
                "If using `validation_split` and shuffling the data, you must provide "
                "a `seed` argument, so that no file is in both subsets."
            )

    def tell(self, text: str) -> None:
        """Prints what was found, if that is wanted."""
        if self.verbose:
            print(text)


def make_datasets(
    request: Request, endings: tuple[str, ...], load: Callable[[Any], object]
) -> Any:
    """Returns a dataset, or those for training and validation.

    Args:
        request: the arguments.
        endings: how the names of files end.
        load: makes an element of a path, without its label.

    Raises:
        ValueError: the arguments do not fit together, or there are no files.
    """
    request.check()
    paths, labels, names = _list_files(request, endings)
    if request.label_mode == "binary" and labels is not None and len(names) != 2:
        raise ValueError(
            'When passing `label_mode="binary"`, there must be exactly 2 class_names. '
            f"Received: class_names={names}"
        )
    seed = request.seed
    if request.shuffle:
        if seed is None:
            seed = int(np.random.default_rng().integers(1_000_000))
        order = np.arange(len(paths))
        # Keras shuffles lists with this generator, which draws by their length alone.
        np.random.RandomState(seed).shuffle(order)
        paths = [paths[i] for i in order]
        labels = None if labels is None else labels[order]
    made = []
    for subset, start, stop in _parts(request, len(paths)):
        if start >= stop:
            raise ValueError(
                f"No {subset} files found in directory {request.directory}. Their "
                f"names end with {', '.join(endings)}."
            )
        is_shuffled = request.shuffle and (request.subset, subset) != (
            "both",
            "validation",
        )
        part = labels if labels is None else labels[start:stop]
        encoded = None if part is None else _encode(part, request.label_mode, names)
        dataset = _make_dataset(
            request, paths[start:stop], encoded, load, seed if is_shuffled else None
        )
        shown = None if labels is None else names
        made.append(DirectoryDataset(dataset, shown, paths[start:stop]))
    return made if request.subset == "both" else made[0]


def _list_files(
    request: Request, endings: tuple[str, ...]
) -> tuple[list[str], np.ndarray | None, list[str]]:
    """Returns paths in order, their labels or None, and the names of the classes.

    Raises:
        ValueError: a class has no folder, or there is not one label for each file.
    """
    top = os.fspath(request.directory)
    given = None if request.label_mode is None else request.labels
    folders = [""]
    if given == "inferred":
        folders = sorted(
            name
            for name in os.listdir(top)
            if os.path.isdir(os.path.join(top, name)) and not name.startswith(".")
        )
        wanted = folders if request.class_names is None else request.class_names
        if not {*wanted} <= {*folders}:
            raise ValueError(
                "The `class_names` passed did not match the names of the "
                f"subdirectories of the target directory. Expected: {folders} (or a "
                f"subset of it), but received: class_names={request.class_names}"
            )
        folders = list(wanted)
    walks = (
        _walk(os.path.join(top, f), request.follow_links, endings) for f in folders
    )
    found = [
        [os.path.join(top, folder, path) for path in walk]
        for folder, walk in zip(folders, walks, strict=True)
    ]
    paths = [path for group in found for path in group]
    if given is None:
        request.tell(f"Found {len(paths)} files.")
        return paths, None, []
    if given == "inferred":
        labels = np.repeat(np.arange(len(folders)), [len(group) for group in found])
        names = folders
    else:
        labels = np.array(given)
        names = [str(label) for label in sorted({*labels.tolist()})]
        if len(labels) != len(paths):
            raise ValueError(
                "Expected the lengths of `labels` to match the number of files in the "
                f"target directory. len(labels) is {len(labels)} while we found "
                f"{len(paths)} files in directory {top}."
            )
    request.tell(f"Found {len(paths)} files belonging to {len(names)} classes.")
    return paths, labels.astype(dtypes.int32), names


def _walk(top: str, follows: bool, endings: tuple[str, ...]) -> Iterator[str]:
    """Yields the paths in a folder and below, by folder and name."""
    for folder, _, names in sorted(os.walk(top, followlinks=follows)):
        for name in sorted(names):
            if name.lower().endswith(endings):
                yield os.path.relpath(os.path.join(folder, name), top)


def _parts(request: Request, size: int) -> list[tuple[str, int, int]]:
    """Returns the subsets that are wanted, and which files each of them has."""
    if request.subset is None:
        return [("", 0, size)]
    kept = int((request.validation_split or 0) * size)
    # Keras leaves all files out if none would be for validation.
    both = {
        "training": (0, size - kept if kept else 0),
        "validation": (size - kept, size),
    }
    chosen = both if request.subset == "both" else [request.subset]
    counts = {name: both[name][1] - both[name][0] for name in chosen}
    for name, count in counts.items():
        request.tell(f"Using {count} files for {name}.")
    return [(name, *both[name]) for name in chosen]


def _encode(labels: np.ndarray, mode: str | None, names: Sequence[str]) -> np.ndarray:
    """Returns labels as a mode says."""
    if mode == "binary":
        return labels[:, None].astype(dtypes.float32)
    if mode == "categorical":
        return (labels[:, None] == np.arange(len(names))).astype(dtypes.float32)
    return labels


def _make_dataset(
    request: Request,
    paths: list[str],
    labels: np.ndarray | None,
    load: Callable[[Any], object],
    seed: int | None,
) -> nodes.Node:
    """Returns the plan of a dataset; it is shuffled if there is a seed."""
    texts = arrays.fill([os.fsencode(path) for path in paths], (len(paths),))
    if labels is None:
        dataset = Dataset.from_tensor_slices(texts)
    else:
        dataset = Dataset.from_tensor_slices((texts, labels))
    size = request.batch_size
    if seed is not None:
        dataset = dataset.shuffle(1024 if size is None else size * 8, seed)
    if labels is None:
        dataset = dataset.map(load, mapping.AUTOTUNE)
    else:
        dataset = dataset.map(lambda path, y: (load(path), y), mapping.AUTOTUNE)
    if size is not None:
        dataset = dataset.batch(size)
    return argument_checks.plan(dataset.prefetch(mapping.AUTOTUNE), "dataset")


def text_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: Labels = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "tf",
    verbose: bool = True,
) -> Any:
    """Returns a dataset of the text files of a directory, as batches of `bytes`.

    Args:
        directory: has a folder for each class.
        labels: "inferred" from the folders, None, or a list of a number for each file.
        label_mode: "int" for int32, "binary" for 0.0 or 1.0, "categorical" for one-hot
            vectors, None for no labels.
        class_names: the names of the folders, in the order of their labels.
        batch_size: how many texts a batch has; None for single texts.
        max_length: how many bytes of each text are kept; None for all.
        shuffle: whether the files are read in a random order.
        seed: the same seed gives the same orders in every run.
        validation_split: the fraction of the files that is used for validation.
        subset: "training", "validation", or "both" for a list of two datasets.
        follow_links: whether symbolic links to folders are followed.
        format: must be "tf", for a dataset of unisono.
        verbose: whether to print the number of files.

    Returns:
        A dataset with the attributes `class_names` and `file_paths`.

    Raises:
        ValueError: the arguments contradict each other, or there are no files.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("bad", "good"):
    ...     _ = folder.joinpath(name).mkdir()
    ...     _ = folder.joinpath(name, "one.txt").write_text(f"so {name}")
    >>> dataset = text_dataset_from_directory(folder, shuffle=False, verbose=False)
    >>> texts, numbers = next(iter(dataset))
    >>> texts.tolist(), numbers.tolist(), dataset.class_names
    ([b'so bad', b'so good'], [0, 1], ['bad', 'good'])
    """

    def load(path: bytes) -> bytes:
        with open(os.fsdecode(path), "rb") as file:
            return file.read(-1 if max_length is None else max_length)

    request = Request(
        directory, labels, label_mode, class_names, batch_size, shuffle, seed,
        validation_split, subset, follow_links, format, verbose,
    )  # fmt: skip
    return make_datasets(request, (".txt",), load)


_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_METHODS = (
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian",
    "mitchellcubic",
)  # fmt: skip


def image_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: Labels = "inferred",
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

    `text_dataset_from_directory` describes the values of `label_mode`.

    Args:
        directory: has a folder for each class; its files are BMP, GIF, JPEG or PNG.
        labels: "inferred" from the folders, None, or a list of a number for each file.
        label_mode: "int", "binary", "categorical" or None.
        class_names: the names of the folders, in the order of their labels.
        color_mode: "grayscale", "rgb" or "rgba", for 1, 3 or 4 channels.
        batch_size: how many images a batch has; None for single images.
        image_size: the height and the width of all images.
        shuffle: whether the files are read in a random order.
        seed: the same seed gives the same orders in every run.
        validation_split: the fraction of the files that is used for validation.
        subset: "training", "validation", or "both" for a list of two datasets.
        interpolation: the method of `unisono.image.resize`.
        follow_links: whether symbolic links to folders are followed.
        crop_to_aspect_ratio: whether images are cropped instead of stretched.
        pad_to_aspect_ratio: whether images are padded instead of stretched.
        data_format: "channels_last", "channels_first", or None for that of Keras.
        format: must be "tf", for a dataset of unisono.
        verbose: whether to print the number of files.

    Returns:
        A dataset with the attributes `class_names` and `file_paths`.

    Raises:
        ValueError: the arguments contradict each other, or there are no files.
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

    request = Request(
        directory, labels, label_mode, class_names, batch_size, shuffle, seed,
        validation_split, subset, follow_links, format, verbose,
    )  # fmt: skip
    return make_datasets(request, _ENDINGS, load)


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


publish(
    "unisono.keras.utils", image_dataset_from_directory, text_dataset_from_directory
)
