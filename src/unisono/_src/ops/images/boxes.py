"""Boxes in images: `non_max_suppression` of ``tf.image``."""

from __future__ import annotations

import jax
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops.images.image_functions import (
    ArrayModule,
    image_function,
    read_array,
    read_size,
)
from unisono._src.ops.tensors import TensorLike
from unisono._src.values import jax_tapes

__all__ = ["non_max_suppression"]


@image_function(
    "image.non_max_suppression",
    difference=(
        "It runs on the host, outside compiled functions, because the number of boxes "
        "that it selects depends on the data."
    ),
    is_of_arrays=False,
)
def non_max_suppression(
    xp: ArrayModule,
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: int,
    iou_threshold: float = 0.5,
    score_threshold: float = float("-inf"),
    name: str | None = None,
) -> jax.Array:
    """Returns the indices of the best boxes, without those that overlap a better one.

    Args:
        xp: the array module.
        boxes: two opposite corners of each box, as [y1, x1, y2, x2].
        scores: the score of each box.
        max_output_size: the largest number of boxes to select.
        iou_threshold: a box is left out if its intersection over union with a better
            one is larger than this.
        score_threshold: only boxes with a larger score are selected.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the shapes do not match, `iou_threshold` is not within
            [0, 1], or `max_output_size` is negative.
        TypeError: it is called in a compiled function.

    >>> boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9], [2.0, 2.0, 3.0, 3.0]]
    >>> non_max_suppression(boxes, [0.5, 0.9, 0.7], 2).tolist()
    [1, 2]
    """
    called = "non_max_suppression"
    given = [read_array(xp, called, x) for x in (boxes, scores)]
    if any(map(jax_tapes.is_traced, given)):
        raise TypeError(
            "How many boxes non_max_suppression selects depends on numbers that a "
            "compiled function computes, and XLA needs sizes that are known. Call it "
            "outside the function, or in Dataset.map."
        )
    corners, values = (np.asarray(x).astype(np.float32) for x in given)
    if corners.ndim != 2 or corners.shape[1] != 4:
        raise errors.InvalidArgumentError(
            f"boxes must be [number of boxes, 4], received {list(corners.shape)}."
        )
    if values.shape != corners.shape[:1]:
        raise errors.InvalidArgumentError(
            f"scores has incompatible shape: {list(values.shape)} for "
            f"{len(corners)} boxes."
        )
    if not 0 <= float(iou_threshold) <= 1:
        raise errors.InvalidArgumentError(
            f"iou_threshold must be in [0, 1], received {iou_threshold}."
        )
    count = read_size(called, "max_output_size", max_output_size)
    if count < 0:
        raise errors.InvalidArgumentError(
            f"max_output_size must be non-negative, received {count}."
        )
    chosen = _select(corners, values, count, float(iou_threshold), score_threshold)
    found: jax.Array = xp.asarray(np.array(chosen, np.int32))
    return found


def _select(
    boxes: np.ndarray, scores: np.ndarray, count: int, most: float, least: float
) -> list[int]:
    """Returns the indices of boxes from the best on, each compared with the better."""
    low = np.minimum(boxes[:, :2], boxes[:, 2:])
    high = np.maximum(boxes[:, :2], boxes[:, 2:])
    areas = np.prod(high - low, axis=1)
    # The first one of equal scores comes first.
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > np.float32(least)]
    chosen: list[int] = []
    while len(order) and len(chosen) < count:
        best, order = order[0], order[1:]
        chosen.append(int(best))
        sides = np.minimum(high[best], high[order]) - np.maximum(low[best], low[order])
        shared = np.prod(np.maximum(sides, 0), axis=1)
        with np.errstate(all="ignore"):
            part = shared / (areas[best] + areas[order] - shared)
        # A box without area overlaps nothing.
        is_empty = (areas[best] <= 0) | (areas[order] <= 0)
        order = order[is_empty | (part <= np.float32(most))]
    return chosen
