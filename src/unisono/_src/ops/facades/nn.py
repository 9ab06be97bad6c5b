"""The everyday names of ``tf.nn`` and where each is found."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.names.convolutions import (
        atrous_conv2d,
        avg_pool,
        avg_pool1d,
        avg_pool2d,
        avg_pool3d,
        conv1d,
        conv1d_transpose,
        conv2d,
        conv2d_transpose,
        conv3d,
        conv3d_transpose,
        convolution,
        depth_to_space,
        depthwise_conv2d,
        max_pool,
        max_pool1d,
        max_pool2d,
        max_pool3d,
        separable_conv2d,
        space_to_depth,
    )
    from unisono._src.ops.names.indexing import in_top_k, top_k
    from unisono._src.ops.names.maths import sigmoid, tanh
    from unisono._src.ops.names.nn import (
        batch_normalization,
        bias_add,
        crelu,
        dropout,
        elu,
        embedding_lookup,
        gelu,
        l2_loss,
        l2_normalize,
        leaky_relu,
        local_response_normalization,
        log_poisson_loss,
        log_softmax,
        moments,
        relu,
        relu6,
        selu,
        sigmoid_cross_entropy_with_logits,
        silu,
        softmax,
        softmax_cross_entropy_with_logits,
        softplus,
        softsign,
        sparse_softmax_cross_entropy_with_logits,
        weighted_cross_entropy_with_logits,
        zero_fraction,
    )
    from unisono._src.ops.names.nn import (
        local_response_normalization as lrn,
    )
    from unisono._src.ops.names.nn import (
        silu as swish,
    )

PLACES = _lazy_names.spread(
    {
        "unisono._src.ops.names.convolutions": (
            "atrous_conv2d avg_pool avg_pool1d avg_pool2d avg_pool3d conv1d "
            "conv1d_transpose conv2d conv2d_transpose conv3d conv3d_transpose "
            "convolution depth_to_space depthwise_conv2d max_pool max_pool1d "
            "max_pool2d max_pool3d separable_conv2d space_to_depth"
        ),
        "unisono._src.ops.names.indexing": ("in_top_k top_k"),
        "unisono._src.ops.names.maths": ("sigmoid tanh"),
        "unisono._src.ops.names.nn": (
            "batch_normalization bias_add crelu dropout elu embedding_lookup gelu "
            "l2_loss l2_normalize leaky_relu local_response_normalization "
            "log_poisson_loss log_softmax lrn=local_response_normalization moments "
            "relu relu6 selu sigmoid_cross_entropy_with_logits silu softmax "
            "softmax_cross_entropy_with_logits softplus softsign "
            "sparse_softmax_cross_entropy_with_logits swish=silu "
            "weighted_cross_entropy_with_logits zero_fraction"
        ),
    }
)
__all__ = [
    "atrous_conv2d",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_normalization",
    "bias_add",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "convolution",
    "crelu",
    "depth_to_space",
    "depthwise_conv2d",
    "dropout",
    "elu",
    "embedding_lookup",
    "gelu",
    "in_top_k",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "local_response_normalization",
    "log_poisson_loss",
    "log_softmax",
    "lrn",
    "max_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "moments",
    "relu",
    "relu6",
    "selu",
    "separable_conv2d",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "silu",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softplus",
    "softsign",
    "space_to_depth",
    "sparse_softmax_cross_entropy_with_logits",
    "swish",
    "tanh",
    "top_k",
    "weighted_cross_entropy_with_logits",
    "zero_fraction",
]
