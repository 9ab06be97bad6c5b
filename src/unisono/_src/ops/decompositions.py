"""Decompositions, determinants, inverses and solutions of matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import kinds, matrices, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import TensorLike

__all__ = [
    "cholesky",
    "cholesky_solve",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "logdet",
    "lstsq",
    "matrix_rank",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "triangular_solve",
]

_NO_SOLUTION = (
    "In a compiled function a singular matrix gives numbers that are not finite; "
    "eagerly it is an error, as in TensorFlow."
)


@array_function("linalg.inv", difference=_NO_SOLUTION)
def inv(input: TensorLike, adjoint: bool = False, name: str | None = None) -> jax.Array:
    """Returns the inverses of square matrices.

    Raises:
        InvalidArgumentError: in eager code, a matrix is singular.
    """
    found = matrices.transpose_if(matrices.check_square("inv", input), False, adjoint)
    made: jax.Array = jnp.linalg.inv(found)
    _check_invertible("inv", "Input is not invertible.", found, made)
    return made


@array_function("linalg.det")
def det(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the determinants of square matrices."""
    made: jax.Array = jnp.linalg.det(matrices.check_square("det", input))
    return made


@array_function("linalg.slogdet")
def slogdet(input: TensorLike, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Returns the signs of determinants, and the logarithms of the absolute values."""
    sign, size = jnp.linalg.slogdet(matrices.check_square("slogdet", input))
    return sign, size


@array_function("linalg.logdet")
def logdet(matrix: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logarithms of the determinants of positive definite matrices."""
    lower = _cholesky("logdet", matrix)
    # The determinant is the square of the product of the factor's diagonal.
    places = jnp.real(jnp.diagonal(lower, axis1=-2, axis2=-1))
    return 2.0 * jnp.sum(jnp.log(places), -1)


@array_function("linalg.cholesky")
def cholesky(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the Cholesky factors of positive definite matrices."""
    return _cholesky("cholesky", input)


@array_function("linalg.cholesky_solve")
def cholesky_solve(
    chol: TensorLike, rhs: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the solutions of linear equations, given Cholesky factors."""
    factor, right = tensors.to_one_type("cholesky_solve", chol, rhs)
    factor = matrices.check_square("cholesky_solve", factor)
    return tensors.call(
        "cholesky_solve", jax.scipy.linalg.cho_solve, (factor, True), right
    )


@array_function("linalg.solve", difference=_NO_SOLUTION)
def solve(
    matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, name: str | None = None
) -> jax.Array:
    """Returns the solutions of systems of linear equations.

    Raises:
        InvalidArgumentError: the shapes do not match; or, in eager code, a matrix is
            singular.
    """
    left, right = tensors.to_one_type("solve", matrix, rhs)
    left = matrices.transpose_if(matrices.check_square("solve", left), False, adjoint)
    right = matrices.to_matrices("solve", right)
    if left.shape[:-1] != right.shape[:-1]:
        raise errors.InvalidArgumentError(
            f"solve: matrix and rhs have the shapes {list(left.shape)} and "
            f"{list(right.shape)}, which must be equal but for the last axis."
        )
    made: jax.Array = jnp.linalg.solve(left, right)
    _check_invertible("solve", "Input matrix is not invertible.", left, made)
    return made


@array_function("linalg.triangular_solve")
def triangular_solve(
    matrix: TensorLike,
    rhs: TensorLike,
    lower: bool = True,
    adjoint: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the solutions of linear equations with triangular matrices."""
    left, right = tensors.to_one_type("triangular_solve", matrix, rhs)
    left = matrices.check_square("triangular_solve", left)
    right = matrices.to_matrices("triangular_solve", right)
    return tensors.call(
        "triangular_solve",
        jax.lax.linalg.triangular_solve,
        left,
        right,
        left_side=True,
        lower=bool(lower),
        transpose_a=bool(adjoint),
        conjugate_a=bool(adjoint),
    )


@array_function("linalg.lstsq")
def lstsq(
    matrix: TensorLike,
    rhs: TensorLike,
    l2_regularizer: float = 0.0,
    fast: bool = True,
    name: str | None = None,
) -> jax.Array:
    """Returns least-squares solutions of linear equations.

    With fewer rows than columns, the solution is the one with the smallest norm.
    """
    left, right = tensors.to_one_type("lstsq", matrix, rhs)
    left, right = (
        matrices.to_matrices("lstsq", left),
        matrices.to_matrices("lstsq", right),
    )
    # As TensorFlow with `fast=True`. With fewer rows than columns the normal equations
    # are those of the other side, which give the smallest solution.
    other = jnp.conj(jnp.matrix_transpose(left))
    rows, columns = left.shape[-2:]
    extra = jnp.asarray(l2_regularizer, left.dtype)
    if rows >= columns:
        inner = other @ left + extra * jnp.eye(columns, dtype=left.dtype)
        made: jax.Array = tensors.call("lstsq", jnp.linalg.solve, inner, other @ right)
        return made
    inner = left @ other + extra * jnp.eye(rows, dtype=left.dtype)
    solution: jax.Array = other @ tensors.call("lstsq", jnp.linalg.solve, inner, right)
    return solution


@array_function("linalg.svd")
def svd(
    tensor: TensorLike,
    full_matrices: bool = False,
    compute_uv: bool = True,
    name: str | None = None,
) -> jax.Array | tuple[jax.Array, ...]:
    """Returns singular values and vectors."""
    found = matrices.to_matrices("svd", tensor)
    if not compute_uv:
        return jnp.linalg.svd(found, compute_uv=False)
    u, s, vh = jnp.linalg.svd(found, full_matrices=bool(full_matrices))
    # TensorFlow's order, and its V, where NumPy has the adjoint of V.
    return s, u, jnp.conj(jnp.matrix_transpose(vh))


@array_function("linalg.qr")
def qr(
    input: TensorLike, full_matrices: bool = False, name: str | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns orthogonal and triangular factors of matrices."""
    found = matrices.to_matrices("qr", input)
    q, r = jnp.linalg.qr(found, mode="complete" if full_matrices else "reduced")
    return q, r


@array_function("linalg.eigh")
def eigh(tensor: TensorLike, name: str | None = None) -> tuple[jax.Array, jax.Array]:
    """Returns eigenvalues and eigenvectors of symmetric matrices."""
    # TensorFlow reads the lower half only.
    values, vectors = jnp.linalg.eigh(
        matrices.check_square("eigh", tensor), symmetrize_input=False
    )
    return values, vectors


@array_function("linalg.eigvalsh")
def eigvalsh(tensor: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the eigenvalues of symmetric matrices."""
    return eigh(tensor)[0]


@array_function("linalg.pinv")
def pinv(
    a: TensorLike,
    rcond: TensorLike | None = None,
    validate_args: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the pseudo-inverses of matrices."""
    found = matrices.to_matrices("pinv", a)
    # TensorFlow's default.
    limit = 10.0 * max(found.shape[-2:]) * float(kinds.limits(found.dtype).eps)
    made = jnp.linalg.pinv(
        found, rtol=limit if rcond is None else tensors.unwrap(rcond)
    )
    # JAX gives zeros for a matrix with infinity.
    is_finite = jnp.isfinite(found).all((-2, -1), keepdims=True)
    return jnp.where(is_finite, made, jnp.nan)


@array_function("linalg.matrix_rank")
def matrix_rank(
    a: TensorLike,
    tol: TensorLike | None = None,
    validate_args: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the ranks of matrices."""
    found = matrices.to_matrices("matrix_rank", a)
    sizes = jnp.linalg.svd(found, compute_uv=False)
    if tol is None:
        # TensorFlow's default.
        share = kinds.limits(sizes.dtype).eps * max(found.shape[-2:])
        limit = share * jnp.max(sizes, -1, keepdims=True)
    else:
        limit = tensors.unwrap(tol)
    return jnp.sum(sizes > limit, -1, jnp.int32)


def _check_invertible(
    name: str, message: str, given: jax.Array, made: jax.Array
) -> None:
    """Raises eagerly if a matrix has no inverse.

    Args:
        name: the function of the caller.
        message: what TensorFlow says.
        given: the matrices.
        made: what was computed of them, which then has numbers that are not finite.
    """
    if tensors.is_traced_tree((given, made)) or np.all(np.isfinite(np.asarray(made))):
        return
    # Infinity may also be a number that is too large, which TensorFlow returns.
    factors, _, _ = jax.lax.linalg.lu(given)
    pivots = np.abs(np.diagonal(np.asarray(factors), axis1=-2, axis2=-1))
    if not np.all(pivots >= kinds.limits(given.dtype).tiny):
        raise errors.InvalidArgumentError(f"{message} ({name})")


def _cholesky(name: str, x: TensorLike) -> jax.Array:
    """Returns the lower triangular Cholesky factors of positive definite matrices."""
    # TensorFlow reads the lower half only.
    return jax.lax.linalg.cholesky(
        matrices.check_square(name, x), symmetrize_input=False
    )
