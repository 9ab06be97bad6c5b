"""The everyday names of ``tf.linalg`` and where each is found."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.ops.names.arithmetic import global_norm
    from unisono._src.ops.names.arrays import eye
    from unisono._src.ops.names.linalg import (
        adjoint,
        band_part,
        cholesky,
        cholesky_solve,
        cross,
        det,
        diag,
        diag_part,
        eigh,
        eigvalsh,
        einsum,
        inv,
        logdet,
        lstsq,
        matmul,
        matrix_rank,
        matrix_transpose,
        matvec,
        norm,
        normalize,
        pinv,
        qr,
        set_diag,
        slogdet,
        solve,
        svd,
        tensor_diag,
        tensor_diag_part,
        tensordot,
        trace,
        triangular_solve,
    )
    from unisono._src.ops.names.nn import l2_normalize

PLACES = _lazy_names.spread(
    {
        "unisono._src.ops.names.arithmetic": ("global_norm"),
        "unisono._src.ops.names.arrays": ("eye"),
        "unisono._src.ops.names.linalg": (
            "adjoint band_part cholesky cholesky_solve cross det diag diag_part eigh "
            "eigvalsh einsum inv logdet lstsq matmul matrix_rank matrix_transpose "
            "matvec norm normalize pinv qr set_diag slogdet solve svd tensor_diag "
            "tensor_diag_part tensordot trace triangular_solve"
        ),
        "unisono._src.ops.names.nn": ("l2_normalize"),
    }
)
__all__ = [
    "adjoint",
    "band_part",
    "cholesky",
    "cholesky_solve",
    "cross",
    "det",
    "diag",
    "diag_part",
    "eigh",
    "eigvalsh",
    "einsum",
    "eye",
    "global_norm",
    "inv",
    "l2_normalize",
    "logdet",
    "lstsq",
    "matmul",
    "matrix_rank",
    "matrix_transpose",
    "matvec",
    "norm",
    "normalize",
    "pinv",
    "qr",
    "set_diag",
    "slogdet",
    "solve",
    "svd",
    "tensor_diag",
    "tensor_diag_part",
    "tensordot",
    "trace",
    "triangular_solve",
]
