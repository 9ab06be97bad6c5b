"""Linear algebra: products, norms, decompositions and solutions of matrices."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import jax

from unisono._src.foundation.public_names import publish
from unisono._src.ops import matrices
from unisono._src.ops.tensors import DType, Sizes, TensorLike


def matmul(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: DType = None,
    grad_a: bool = False,
    grad_b: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the product of matrices.

    The arguments are those of TensorFlow's ``tf.matmul``; `name` has no effect.

    >>> matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """
    return matrices.matmul(
        a, b, (transpose_a, transpose_b), (adjoint_a, adjoint_b), output_type
    )


def matvec(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the product of matrices and vectors.

    The arguments are those of TensorFlow's ``tf.linalg.matvec``; `name` has no effect.
    """
    return matrices.matvec(a, b, transpose_a, adjoint_a)


def tensordot(
    a: TensorLike, b: TensorLike, axes: Sizes, name: str | None = None
) -> jax.Array:
    """Returns the product of arrays, summed over pairs of axes.

    The arguments are those of TensorFlow's ``tf.tensordot``; `name` has no effect.
    """
    return matrices.tensordot(a, b, axes)


def einsum(equation: str, *inputs: TensorLike, **kwargs: object) -> jax.Array:
    """Returns the sums of products that an equation describes.

    The arguments are those of TensorFlow's ``tf.einsum``.

    >>> einsum("ij,j->i", [[1, 2], [3, 4]], [1, 1]).tolist()
    [3, 7]
    """
    return matrices.einsum(equation, *inputs, **kwargs)


def norm(
    tensor: TensorLike,
    ord: str | float = "euclidean",
    axis: Sizes | None = None,
    keepdims: bool | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the norm of vectors, or of matrices if two axes are given.

    The arguments are those of TensorFlow's ``tf.norm``; `name` has no effect.
    """
    return matrices.norm("norm", tensor, ord, axis, keepdims)


def normalize(
    tensor: TensorLike,
    ord: str | float = "euclidean",
    axis: Sizes | None = None,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns arrays divided by their norm, and the norm.

    The arguments are those of TensorFlow's ``tf.linalg.normalize``; `name` has no
    effect.
    """
    return matrices.normalize(tensor, ord, axis)


def trace(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the sums of the diagonals.

    The arguments are those of TensorFlow's ``tf.linalg.trace``; `name` has no effect.
    """
    return matrices.trace(x)


def diag(
    diagonal: TensorLike,
    name: str | None = "diag",
    k: Sizes = 0,
    num_rows: int = -1,
    num_cols: int = -1,
    padding_value: float = 0,
    align: str = "RIGHT_LEFT",
) -> jax.Array:
    """Returns matrices with a given diagonal.

    The arguments are those of TensorFlow's ``tf.linalg.diag``; `name` has no effect.

    It takes one diagonal, not a band of several.
    """
    return matrices.diag(diagonal, k, num_rows, num_cols, padding_value)


def diag_part(
    input: TensorLike,
    name: str | None = "diag_part",
    k: Sizes = 0,
    padding_value: float = 0,
    align: str = "RIGHT_LEFT",
) -> jax.Array:
    """Returns the diagonals of matrices.

    The arguments are those of TensorFlow's ``tf.linalg.diag_part``; `name` has no
    effect.

    It gives one diagonal, not a band of several.
    """
    return matrices.diag_part(input, k)


def set_diag(
    input: TensorLike,
    diagonal: TensorLike,
    name: str | None = "set_diag",
    k: Sizes = 0,
    align: str = "RIGHT_LEFT",
) -> jax.Array:
    """Returns matrices with another diagonal.

    The arguments are those of TensorFlow's ``tf.linalg.set_diag``; `name` has no
    effect.

    It takes one diagonal, not a band of several.
    """
    return matrices.set_diag(input, diagonal, k)


def tensor_diag(diagonal: TensorLike, name: str | None = None) -> jax.Array:
    """Returns an array with the given diagonal elements.

    The arguments are those of TensorFlow's ``tf.linalg.tensor_diag``; `name` has no
    effect.
    """
    return matrices.tensor_diag(diagonal)


def tensor_diag_part(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the diagonal elements of an array.

    The arguments are those of TensorFlow's ``tf.linalg.tensor_diag_part``; `name` has
    no effect.
    """
    return matrices.tensor_diag_part(input)


def band_part(
    input: TensorLike, num_lower: int, num_upper: int, name: str | None = None
) -> jax.Array:
    """Returns matrices with zeros outside a band.

    The arguments are those of TensorFlow's ``tf.linalg.band_part``; `name` has no
    effect.
    """
    return matrices.band_part(input, num_lower, num_upper)


def matrix_transpose(
    a: TensorLike, name: str | None = "matrix_transpose", conjugate: bool = False
) -> jax.Array:
    """Returns matrices with rows and columns exchanged.

    The arguments are those of TensorFlow's ``tf.linalg.matrix_transpose``; `name` has
    no effect.
    """
    return matrices.matrix_transpose(a, conjugate)


def adjoint(matrix: TensorLike, name: str | None = None) -> jax.Array:
    """Returns matrices conjugated and transposed.

    The arguments are those of TensorFlow's ``tf.linalg.adjoint``; `name` has no effect.
    """
    return matrices.matrix_transpose(matrix, True)


def inv(input: TensorLike, adjoint: bool = False, name: str | None = None) -> jax.Array:
    """Returns the inverses of square matrices.

    The arguments are those of TensorFlow's ``tf.linalg.inv``; `name` has no effect.

    In a compiled function matrices without a solution give numbers that are not finite;
    eagerly they are an error, as in TensorFlow.
    """
    return matrices.inv(input, adjoint)


def det(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the determinants of square matrices.

    The arguments are those of TensorFlow's ``tf.linalg.det``; `name` has no effect.
    """
    return matrices.det(input)


def slogdet(input: TensorLike, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Returns the signs and logarithms of determinants.

    The arguments are those of TensorFlow's ``tf.linalg.slogdet``; `name` has no effect.
    """
    return matrices.slogdet(input)


def logdet(matrix: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logarithms of determinants.

    The arguments are those of TensorFlow's ``tf.linalg.logdet``; `name` has no effect.
    """
    return matrices.logdet(matrix)


def cholesky(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the Cholesky factors of matrices.

    The arguments are those of TensorFlow's ``tf.linalg.cholesky``; `name` has no
    effect.
    """
    return matrices.cholesky("cholesky", input)


def cholesky_solve(
    chol: TensorLike, rhs: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns solutions from given Cholesky factors.

    The arguments are those of TensorFlow's ``tf.linalg.cholesky_solve``; `name` has no
    effect.
    """
    return matrices.cholesky_solve(chol, rhs)


def solve(
    matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, name: str | None = None
) -> jax.Array:
    """Returns the solutions of systems of linear equations.

    The arguments are those of TensorFlow's ``tf.linalg.solve``; `name` has no effect.

    In a compiled function matrices without a solution give numbers that are not finite;
    eagerly they are an error, as in TensorFlow.
    """
    return matrices.solve(matrix, rhs, adjoint)


def triangular_solve(
    matrix: TensorLike,
    rhs: TensorLike,
    lower: bool = True,
    adjoint: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the solutions for triangular matrices.

    The arguments are those of TensorFlow's ``tf.linalg.triangular_solve``; `name` has
    no effect.
    """
    return matrices.triangular_solve(matrix, rhs, lower, adjoint)


def lstsq(
    matrix: TensorLike,
    rhs: TensorLike,
    l2_regularizer: float = 0.0,
    fast: bool = True,
    name: str | None = None,
) -> jax.Array:
    """Returns least-squares solutions.

    The arguments are those of TensorFlow's ``tf.linalg.lstsq``; `name` has no effect.
    """
    return matrices.lstsq(matrix, rhs, l2_regularizer)


def svd(
    tensor: TensorLike,
    full_matrices: bool = False,
    compute_uv: bool = True,
    name: str | None = None,
) -> jax.Array | tuple[jax.Array, ...]:
    """Returns singular values and vectors.

    The arguments are those of TensorFlow's ``tf.linalg.svd``; `name` has no effect.
    """
    return matrices.svd(tensor, full_matrices, compute_uv)


def qr(
    input: TensorLike, full_matrices: bool = False, name: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns orthogonal and triangular factors of matrices.

    The arguments are those of TensorFlow's ``tf.linalg.qr``; `name` has no effect.
    """
    return matrices.qr(input, full_matrices)


def eigh(tensor: TensorLike, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Returns eigenvalues and eigenvectors of symmetric matrices.

    The arguments are those of TensorFlow's ``tf.linalg.eigh``; `name` has no effect.
    """
    return matrices.eigh(tensor)


def eigvalsh(tensor: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the eigenvalues of symmetric matrices.

    The arguments are those of TensorFlow's ``tf.linalg.eigvalsh``; `name` has no
    effect.
    """
    return matrices.eigvalsh(tensor)


def pinv(
    a: TensorLike,
    rcond: TensorLike | None = None,
    validate_args: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the pseudo-inverses of matrices.

    The arguments are those of TensorFlow's ``tf.linalg.pinv``; `name` has no effect.
    """
    return matrices.pinv(a, rcond)


def matrix_rank(
    a: TensorLike,
    tol: TensorLike | None = None,
    validate_args: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the ranks of matrices.

    The arguments are those of TensorFlow's ``tf.linalg.matrix_rank``; `name` has no
    effect.
    """
    return matrices.matrix_rank(a, tol)


def cross(a: TensorLike, b: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the cross products of vectors of three elements.

    The arguments are those of TensorFlow's ``tf.linalg.cross``; `name` has no effect.
    """
    return matrices.cross(a, b)


publish("unisono", matmul, tensordot, einsum, norm)
publish(
    "unisono.linalg",
    matvec,
    normalize,
    trace,
    diag,
    diag_part,
    set_diag,
    tensor_diag,
    tensor_diag_part,
    band_part,
    matrix_transpose,
    adjoint,
    inv,
    det,
    slogdet,
    logdet,
    cholesky,
    cholesky_solve,
    solve,
    triangular_solve,
    lstsq,
    svd,
    qr,
    eigh,
    eigvalsh,
    pinv,
    matrix_rank,
    cross,
)
