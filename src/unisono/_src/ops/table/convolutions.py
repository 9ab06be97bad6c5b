"""Convolutions and pooling of images, volumes and sequences."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_NAME = "name: str | None = None"
_AXES = {1: "one axis", 2: "two axes", 3: "three axes"}
_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def _convolution(rank: int) -> Name:
    name, strides = f"conv{rank}d", "stride" if rank == 1 else "strides"
    axes = {1: "an axis", 2: "two axes", 3: "three axes"}[rank]
    return Name(
        f"nn.{name}",
        f"Returns a convolution over {axes}.",
        f"input: TensorLike, filters: TensorLike, {strides}: Sizes, "
        f"padding: str | Sequence[Any], data_format: str = 'N{_SPACE[rank]}C', "
        f"dilations: Sizes | None = None, {_NAME}",
        f'convolutions.convolve("{name}", {rank}, input, filters, {strides}, padding, '
        "data_format, dilations)",
    )


def _transposed(rank: int) -> Name:
    name = f"conv{rank}d_transpose"
    return Name(
        f"nn.{name}",
        f"Returns the transpose of `conv{rank}d`.",
        "input: TensorLike, filters: TensorLike, output_shape: Sizes, strides: Sizes, "
        "padding: str | Sequence[Any] = 'SAME', "
        f"data_format: str = 'N{_SPACE[rank]}C', dilations: Sizes | None = None, "
        f"{_NAME}",
        f'convolutions.transpose("{name}", {rank}, input, filters, output_shape, '
        "strides, padding, data_format, dilations)",
    )


def _pool(kind: str, rank: int, summary: str) -> Name:
    name = f"{kind}_pool{rank}d"
    return Name(
        f"nn.{name}",
        f"Returns {summary} of windows over {_AXES[rank]}.",
        "input: TensorLike, ksize: Sizes, strides: Sizes, "
        f"padding: str | Sequence[Any], data_format: str = 'N{_SPACE[rank]}C', {_NAME}",
        f'convolutions.{kind}_pool("{name}", {rank}, input, ksize, strides, padding, '
        "data_format)",
    )


def _pool_any(kind: str, summary: str) -> Name:
    return Name(
        f"nn.{kind}_pool",
        f"Returns {summary} of windows over the axes of space.",
        "input: TensorLike, ksize: Sizes, strides: Sizes, "
        f"padding: str | Sequence[Any], data_format: str | None = None, {_NAME}",
        f'convolutions.pool_any("{kind}_pool", convolutions.{kind}_pool, input, ksize, '
        "strides, padding, data_format)",
    )


ROWS = (
    _convolution(1),
    _convolution(2),
    _convolution(3),
    _transposed(1),
    _transposed(2),
    _transposed(3),
    Name("nn.convolution", "Returns a convolution over as many axes as the kernel has.",
         "input: TensorLike, filters: TensorLike, strides: Sizes | None = None, "
         "padding: str | Sequence[Any] = 'VALID', data_format: str | None = None, "
         f"dilations: Sizes | None = None, {_NAME}",
         "convolutions.convolve_any(input, filters, strides, padding, data_format, "
         "dilations)"),
    Name("nn.depthwise_conv2d", "Returns a convolution of each channel by itself.",
         "input: TensorLike, filter: TensorLike, strides: Sizes, "
         "padding: str | Sequence[Any], data_format: str | None = None, "
         f"dilations: Sizes | None = None, {_NAME}",
         "convolutions.convolve_depthwise(input, filter, strides, padding, "
         "data_format, dilations)"),
    Name("nn.separable_conv2d", "Returns a convolution of channels, then across them.",
         "input: TensorLike, depthwise_filter: TensorLike, "
         "pointwise_filter: TensorLike, strides: Sizes, "
         "padding: str | Sequence[Any], data_format: str | None = None, "
         f"dilations: Sizes | None = None, {_NAME}",
         "convolutions.convolve_separable(input, depthwise_filter, pointwise_filter, "
         "strides, padding, data_format, dilations)"),
    *(_pool("max", rank, "the largest elements") for rank in (1, 2, 3)),
    *(_pool("avg", rank, "the means") for rank in (1, 2, 3)),
    _pool_any("max", "the largest elements"),
    _pool_any("avg", "the means"),
    Name("nn.atrous_conv2d", "Returns a convolution with holes in its kernel.",
         "value: TensorLike, filters: TensorLike, rate: int, padding: str, "
         f"{_NAME}",
         'convolutions.convolve("atrous_conv2d", 2, value, filters, 1, padding, None, '
         "rate)"),
    Name("nn.space_to_depth", "Returns images in which blocks have become channels.",
         "input: TensorLike, block_size: int, data_format: str = 'NHWC', "
         f"{_NAME}", "shaping.space_to_depth(input, block_size, data_format)"),
    Name("nn.depth_to_space", "Returns images in which channels have become blocks.",
         "input: TensorLike, block_size: int, data_format: str = 'NHWC', "
         f"{_NAME}", "shaping.depth_to_space(input, block_size, data_format)"),
)  # fmt: skip
