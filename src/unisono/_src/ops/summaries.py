"""Images, histograms, texts and sound for TensorBoard: names of ``tf.summary``.

They are written in TensorBoard's own form, an array and the name of a plugin.
"""

from __future__ import annotations

import functools
import io
import wave
from typing import Any

import numpy as np

from unisono._src.foundation import errors, messages
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops.images import colours, png_files
from unisono._src.ops.records import tensor_protos
from unisono._src.training import summary
from unisono._src.training.summary import Step

__all__ = ["audio", "histogram", "image", "text"]

_BUCKETS = 30
_LOSSLESS = 6  # zlib's default.
# TensorBoard's mark of sound in WAV files.
_WAV = b"\x10\x0b"
_SAMPLE = 2**15


@everyday_name("summary.image")
def image(
    name: str,
    data: object,
    step: Step | None = None,
    max_outputs: int = 3,
    description: str | None = None,
) -> bool:
    """Writes images to this thread's default writer.

    Args:
        name: the name of the summary.
        data: images of shape ``[number, height, width, channels]``, with 1 to 4
            channels, as floats from 0 to 1 or integers; or a function that returns
            them.
        step: the training step; by default that of `set_step` or `as_default`.
        max_outputs: the maximum number of images to write.
        description: a text that TensorBoard shows.

    Returns:
        Whether they were written; see `should_record_summaries`.

    Raises:
        ValueError: no step is set, or `data` has a wrong shape.

    >>> import tempfile, unisono
    >>> writer = unisono.summary.create_file_writer(tempfile.mkdtemp())
    >>> with writer.as_default(step=1):
    ...     unisono.summary.image("samples", np.zeros((2, 8, 8, 3)))
    True
    >>> writer.close()
    """

    def encode(found: np.ndarray) -> tuple[bytes, bytes]:
        _check_rank(found, 4)
        if not 1 <= found.shape[-1] <= 4:
            raise errors.InvalidArgumentError(
                "image must have 1, 2, 3, or 4 channels, got "
                f"{found.shape[-1]} in the summary {name!r}."
            )
        chosen = found[: max(max_outputs, 0)]
        if chosen.dtype == np.float64:
            chosen = chosen.astype(np.float32)
        pixels = np.asarray(colours.convert_image_dtype(chosen, np.uint8, True))
        files = [png_files.encode(one, _LOSSLESS) for one in pixels]
        height, width = found.shape[1:3]
        sizes = [str(size).encode() for size in (width, height)]
        return _texts([*sizes, *files]), _metadata("images", description)

    return summary.write_encoded(name, data, step, encode)


@everyday_name("summary.histogram")
def histogram(
    name: str,
    data: object,
    step: Step | None = None,
    buckets: int | None = None,
    description: str | None = None,
) -> bool:
    """Writes a histogram: how many numbers are in each part of their range.

    Args:
        name: the name of the summary.
        data: an array of any shape, a variable, or a function that returns one.
        step: the training step; by default that of `set_step` or `as_default`.
        buckets: the number of parts, 30 by default.
        description: a text that TensorBoard shows.

    Returns:
        Whether it was written; see `should_record_summaries`.

    Raises:
        ValueError: no step is set, or `data` is text.

    >>> import tempfile, unisono
    >>> weight = unisono.Variable([1.0, 2.0, 4.0])
    >>> writer = unisono.summary.create_file_writer(tempfile.mkdtemp())
    >>> with writer.as_default(step=1):
    ...     unisono.summary.histogram("weights", weight)
    True
    >>> writer.close()
    """
    count = _BUCKETS if buckets is None else buckets

    def encode(found: np.ndarray) -> tuple[bytes, bytes]:
        if found.dtype.kind in "OUS":
            raise ValueError(f"The summary {name!r} has no numbers, received text.")
        table = _count(found.astype(np.float64).ravel(), count)
        return _bytes(table), _metadata("histograms", description)

    return summary.write_encoded(name, data, step, encode)


@everyday_name("summary.text")
def text(
    name: str, data: object, step: Step | None = None, description: str | None = None
) -> bool:
    """Writes text, which TensorBoard shows as Markdown.

    Args:
        name: the name of the summary.
        data: a string or nested lists of strings. TensorBoard shows a list of lists as
            a table.
        step: the training step; by default that of `set_step` or `as_default`.
        description: a text that TensorBoard shows.

    Returns:
        Whether it was written; see `should_record_summaries`.

    Raises:
        TypeError: `data` is not text.
        ValueError: no step is set.

    >>> import tempfile, unisono
    >>> writer = unisono.summary.create_file_writer(tempfile.mkdtemp())
    >>> with writer.as_default(step=1):
    ...     unisono.summary.text("settings", "learning rate: 0.1")
    True
    >>> writer.close()
    """

    def encode(found: np.ndarray) -> tuple[bytes, bytes]:
        if any(not isinstance(x, (str, bytes)) for x in found.ravel().tolist()):
            raise TypeError(
                f"The summary {name!r} must be of type string; got {found.dtype}. "
                "Write str(x) for a number."
            )
        return _texts(found), _metadata("text", description)

    return summary.write_encoded(name, data, step, encode)


@everyday_name("summary.audio")
def audio(
    name: str,
    data: object,
    sample_rate: int,
    step: Step | None = None,
    max_outputs: int = 3,
    encoding: str | None = None,
    description: str | None = None,
) -> bool:
    """Writes sound to this thread's default writer, as WAV files.

    Args:
        name: the name of the summary.
        data: clips of shape ``[number, samples, channels]``, floats from -1 to 1.
        sample_rate: the number of samples per second.
        step: the training step; by default that of `set_step` or `as_default`.
        max_outputs: the maximum number of clips to write.
        encoding: ``"wav"`` or None, which means the same.
        description: a text that TensorBoard shows.

    Returns:
        Whether they were written; see `should_record_summaries`.

    Raises:
        ValueError: no step is set, `encoding` is unknown, or `data` has a wrong shape.

    >>> import tempfile, unisono
    >>> writer = unisono.summary.create_file_writer(tempfile.mkdtemp())
    >>> with writer.as_default(step=1):
    ...     unisono.summary.audio("voice", np.zeros((1, 8000, 1)), 8000)
    True
    >>> writer.close()
    """
    if encoding not in (None, "wav"):
        raise ValueError(f"Unknown encoding: {encoding!r}. Write 'wav'.")

    def encode(found: np.ndarray) -> tuple[bytes, bytes]:
        _check_rank(found, 3)
        clips = found[: max(max_outputs, 0)]
        # The second of each pair is a label, which TensorBoard no longer shows.
        pairs = [(_encode_wav(clip, sample_rate), b"") for clip in clips]
        return _texts(pairs, (len(pairs), 2)), _metadata("audio", description, _WAV)

    return summary.write_encoded(name, data, step, encode)


def _check_rank(found: np.ndarray, rank: int) -> None:
    if found.ndim != rank:
        raise ValueError(
            f"Tensor must have rank {rank}. Received rank {found.ndim}, shape "
            f"{found.shape}."
        )


def _count(numbers: np.ndarray, buckets: int) -> np.ndarray:
    """Returns the left end, the right end and the count of each part of a range."""
    table = np.zeros((buckets, 3))
    if not numbers.size or not buckets:
        return table
    least, most = numbers.min(), numbers.max()
    if not np.isfinite(most - least):
        # As in TensorBoard: a range that is not finite has no parts.
        table[:, :2] = np.nan
    elif least == most:
        table[:, :2] = least
        table[-1, 2] = numbers.size
    else:
        places = (numbers - least) // ((most - least) / buckets)
        which = np.minimum(places.astype(np.int64), buckets - 1)
        edges = np.linspace(least, most, buckets + 1)
        table[:, 0], table[:, 1] = edges[:-1], edges[1:]
        table[:, 2] = np.bincount(which, minlength=buckets)
    return table


def _encode_wav(clip: np.ndarray, rate: int) -> bytes:
    """Returns a WAV file with samples of 16 bits."""
    scaled = clip.astype(np.float64) * _SAMPLE
    rounded = np.trunc(scaled + np.copysign(0.5, scaled))
    samples = np.clip(rounded, -_SAMPLE, _SAMPLE - 1).astype("<i2")
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setparams((clip.shape[1], 2, rate, len(clip), "NONE", ""))
        file.writeframes(samples.tobytes())
    return target.getvalue()


def _texts(values: object, shape: tuple[int, ...] | None = None) -> bytes:
    """Returns texts as the bytes of a tensor."""
    found = np.array(values, object)
    return _bytes(found if shape is None else found.reshape(shape))


def _bytes(value: np.ndarray) -> bytes:
    return bytes(tensor_protos.serialize_tensor(value))


@functools.cache
def _metadata_class() -> Any:
    return messages.make_classes(
        Metadata="optional Plugin plugin_data = 1;"
        "optional string summary_description = 3",
        Plugin="optional string plugin_name = 1; optional bytes content = 2",
    )["Metadata"]


def _metadata(plugin: str, description: str | None, content: bytes = b"") -> bytes:
    """Returns which plugin of TensorBoard shows a summary."""
    made = _metadata_class()(plugin_data={"plugin_name": plugin})
    if content:
        made.plugin_data.content = content
    if description:
        made.summary_description = description
    found: bytes = made.SerializeToString()
    return found
