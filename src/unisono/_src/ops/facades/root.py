"""The everyday names of ``tf`` itself and where each is found."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.names.maths import (
        abs,
        acos,
        acosh,
        add,
        add_n,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        clip_by_global_norm,
        clip_by_norm,
        clip_by_value,
        complex,
        cos,
        cosh,
        divide,
        equal,
        exp,
        floor,
        greater,
        greater_equal,
        less,
        less_equal,
        logical_and,
        logical_not,
        logical_or,
        maximum,
        minimum,
        multiply,
        negative,
        not_equal,
        pow,
        realdiv,
        round,
        scalar_mul,
        sigmoid,
        sign,
        sin,
        sinh,
        sqrt,
        square,
        subtract,
        tan,
        tanh,
        truediv,
        truncatediv,
        truncatemod,
    )
    from unisono._src.ops.names.reductions import (
        argmax,
        argmin,
        cumsum,
        reduce_all,
        reduce_any,
        reduce_logsumexp,
        reduce_max,
        reduce_mean,
        reduce_min,
        reduce_prod,
        reduce_sum,
    )

PLACES = _lazy_names.spread(
    {
        "unisono._src.ops.names.maths": (
            "abs acos acosh add add_n asin asinh atan atan2 atanh clip_by_global_norm "
            "clip_by_norm clip_by_value complex cos cosh divide equal exp floor "
            "greater greater_equal less less_equal logical_and logical_not logical_or "
            "maximum minimum multiply negative not_equal pow realdiv round scalar_mul "
            "sigmoid sign sin sinh sqrt square subtract tan tanh truediv truncatediv "
            "truncatemod"
        ),
        "unisono._src.ops.names.reductions": (
            "argmax argmin cumsum reduce_all reduce_any reduce_logsumexp reduce_max "
            "reduce_mean reduce_min reduce_prod reduce_sum"
        ),
    }
)
__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "add_n",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "complex",
    "cos",
    "cosh",
    "cumsum",
    "divide",
    "equal",
    "exp",
    "floor",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "pow",
    "realdiv",
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "round",
    "scalar_mul",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "truediv",
    "truncatediv",
    "truncatemod",
]
