"""Linear algebra: products, norms, decompositions and solutions of matrices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import kinds, reductions, tensors


def _matrix(name: str, x: Any, allowed: str = kinds.INEXACT) -> jax.Array:
    """Returns an array of at least two axes."""
    found = tensors.tensor(x)
    kinds.check(name, found.dtype, allowed)
    if found.ndim < 2:
        raise errors.InvalidArgumentError(
            f"{name} takes arrays of at least two axes, received the shape "
            f"{list(found.shape)}."
        )
    return found


def check_square(name: str, x: Any) -> jax.Array:
    """Returns the array of square matrices.

    Raises:
        InvalidArgumentError: the matrices are not square.
    """
    found = _matrix(name, x)
    if found.shape[-1] != found.shape[-2]:
        raise errors.InvalidArgumentError(
            f"{name} takes square matrices, received the shape {list(found.shape)}."
        )
    return found


def transpose_if(x: Any, transpose: Any, adjoint: Any) -> jax.Array:
    """Returns matrices, transposed or conjugate transposed if asked."""
    if transpose and adjoint:
        raise ValueError(
            "Only one of transpose and adjoint can be True for the same matrix."
        )
    made: jax.Array = jnp.matrix_transpose(x) if transpose or adjoint else x
    return jnp.conj(made) if adjoint else made


def matmul(
    a: Any, b: Any, transposed: tuple[Any, Any], adjoint: tuple[Any, Any], dtype: Any
) -> jax.Array:
    """Returns the product of matrices.

    Args:
        a: the left matrices.
        b: the right matrices.
        transposed: whether each of them is transposed first.
        adjoint: whether each of them is conjugated and transposed first.
        dtype: the type of the result; None for that of the matrices.
    """
    a, b = tensors.to_one_type("matmul", a, b)
    left = transpose_if(_matrix("matmul", a, kinds.NUMBERS), transposed[0], adjoint[0])
    right = transpose_if(_matrix("matmul", b, kinds.NUMBERS), transposed[1], adjoint[1])
    wanted = None if dtype is None else tensors.usable_type(dtype)
    # The sums are computed in that type, too, not only stored in it.
    return tensors.call(
        "matmul", jnp.matmul, left, right, preferred_element_type=wanted
    )


def matvec(a: Any, b: Any, transpose: Any, adjoint: Any) -> jax.Array:
    """Returns the product of matrices and vectors."""
    a, b = tensors.to_one_type("matvec", a, b)
    left = transpose_if(_matrix("matvec", a, kinds.NUMBERS), transpose, adjoint)
    if not b.ndim:
        raise errors.InvalidArgumentError("matvec takes vectors, received a scalar.")
    made = tensors.call("matvec", jnp.matmul, left, b[..., None])
    return made[..., 0]


def tensordot(a: Any, b: Any, axes: Any) -> jax.Array:
    """Returns the product of arrays, summed over pairs of axes."""
    a, b = tensors.to_one_type("tensordot", a, b)
    kinds.check("tensordot", a.dtype, kinds.NUMBERS)
    wanted = tensors.require_known("tensordot", "axes", axes)
    return tensors.call("tensordot", jnp.tensordot, a, b, wanted)


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> jax.Array:
    """Returns the sum of products that an equation, such as ``ij,jk->ik``, describes.

    Raises:
        TypeError: an argument is unknown.
    """
    kwargs.pop("name", None)
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(f"Invalid keyword arguments for einsum: {', '.join(kwargs)}.")
    found = tensors.to_one_type("einsum", *inputs)
    kinds.check("einsum", found[0].dtype, kinds.NUMBERS)
    return tensors.call("einsum", jnp.einsum, equation, *found)


_ORDERS = ("euclidean", "fro", 1, 2, np.inf)


def norm(name: str, x: Any, ord: Any, axis: Any, keepdims: Any) -> jax.Array:
    """Returns the norm of vectors, or of matrices if two axes are given.

    Raises:
        ValueError: there is no such norm.
    """
    found = tensors.tensor(x)
    keep = bool(keepdims)
    is_matrix = isinstance(axis, (list, tuple)) and len(axis) == 2
    # Vectors have a norm for every positive number, matrices only those of the list.
    is_known = ord in _ORDERS if isinstance(ord, str) or is_matrix else ord > 0
    if not is_known or (ord == "fro" and not is_matrix):
        raise ValueError(
            f"'ord' must be a supported {'matrix' if is_matrix else 'vector'} norm in "
            f"{_ORDERS}, got {ord}."
        )
    if isinstance(axis, (list, tuple)) and len(axis) not in (1, 2):
        raise ValueError(
            f"'axis' must be None, an integer, or a tuple of 2 unique integers, got "
            f"{axis}."
        )
    allowed = kinds.NUMBERS if ord in (1, np.inf) else kinds.INEXACT
    kinds.check(name, found.dtype, allowed)
    axes = reductions.find_axes(name, axis, found.ndim)
    if is_matrix and ord in (1, 2, np.inf):
        made: jax.Array = jnp.linalg.norm(found, ord, axes, keepdims=keep)
        return made
    # Over any other axes, and for "fro", a norm is that of all elements as a vector.
    sizes = jnp.abs(found)
    if ord == 1:
        return jnp.sum(sizes, axes, sizes.dtype, keepdims=keep)
    if ord == np.inf:
        return jnp.max(sizes, axes, keepdims=keep)
    power = 2 if isinstance(ord, str) else ord
    total = jnp.sum(sizes**power, axes, keepdims=keep)
    if power == 2:
        return jnp.sqrt(total).astype(found.dtype)
    root: jax.Array = total ** (1.0 / power)
    return root


def normalize(x: Any, ord: Any, axis: Any) -> tuple[jax.Array, jax.Array]:
    """Returns vectors, or matrices, divided by their norm, and the norm."""
    found = tensors.tensor(x)
    size = norm("normalize", found, ord, axis, True)
    return found / size, size


def trace(x: Any) -> jax.Array:
    """Returns the sums of the diagonals."""
    found = _matrix("trace", x, kinds.NUMBERS)
    return jnp.trace(found, axis1=-2, axis2=-1, dtype=found.dtype)


def check_diagonal(name: str, k: Any) -> int:
    """Returns the number of a diagonal; refuses a range of diagonals."""
    found = tensors.require_known(name, "k", k)
    if isinstance(found, tuple):
        if len(set(found)) > 1:
            raise NotImplementedError(
                f"{name} takes one diagonal, k = 0 for the main one; received a range, "
                f"{k}."
            )
        found = found[0]
    return int(found)


def diag(diagonal: Any, k: Any, rows: Any, columns: Any, padding: Any) -> jax.Array:
    """Returns matrices with a given diagonal, and padding elsewhere."""
    found = tensors.tensor(diagonal)
    if not found.ndim:
        raise errors.InvalidArgumentError(
            "diagonal must be at least 1-dim in diag, received a scalar."
        )
    offset = check_diagonal("diag", k)
    size = found.shape[-1]
    height = width = size + abs(offset)
    if rows != -1 or columns != -1:
        height = tensors.require_known("diag", "num_rows", rows)
        width = tensors.require_known("diag", "num_cols", columns)
        height = size + max(-offset, 0) if height == -1 else height
        width = size + max(offset, 0) if width == -1 else width
    fits = min(height - max(-offset, 0), width - max(offset, 0)) == size
    if not fits:
        raise errors.InvalidArgumentError(
            f"The number of rows {height} and of columns {width} does not fit a "
            f"diagonal of {size} elements in diag."
        )
    # The default fits every type, bools too.
    filler = False if isinstance(padding, int) and padding == 0 else padding
    made = jnp.full((*found.shape[:-1], height, width), filler, found.dtype)
    places = jnp.arange(size)
    # A positive offset is to the right of the main diagonal, a negative one below it.
    first, second = places + max(-offset, 0), places + max(offset, 0)
    return made.at[..., first, second].set(found)


def diag_part(x: Any, k: Any) -> jax.Array:
    """Returns the diagonals of matrices."""
    found = _matrix("diag_part", x, kinds.ALL)
    offset = check_diagonal("diag_part", k)
    if not -found.shape[-2] < offset < found.shape[-1]:
        raise errors.InvalidArgumentError(
            f"lower_diag_index is out of bound: {offset} in diag_part."
        )
    made: jax.Array = jnp.diagonal(found, offset, -2, -1)
    return made


def set_diag(x: Any, diagonal: Any, k: Any) -> jax.Array:
    """Returns matrices with another diagonal."""
    found, new = tensors.to_one_type("set_diag", x, diagonal)
    found = _matrix("set_diag", found, kinds.ALL)
    offset = check_diagonal("set_diag", k)
    size = jnp.diagonal(found, offset, -2, -1).shape
    if size != new.shape:
        raise errors.InvalidArgumentError(
            f"set_diag: the diagonal has shape {list(size)}, received "
            f"{list(new.shape)}."
        )
    places = jnp.arange(size[-1])
    first, second = places + max(-offset, 0), places + max(offset, 0)
    return found.at[..., first, second].set(new)


def tensor_diag(diagonal: Any) -> jax.Array:
    """Returns an array of twice the axes with the given elements on its diagonal."""
    found = tensors.tensor(diagonal)
    if not found.ndim:
        raise errors.InvalidArgumentError("tensor_diag takes arrays with axes.")
    return jnp.diag(found.reshape(-1)).reshape(*found.shape, *found.shape)


def tensor_diag_part(x: Any) -> jax.Array:
    """Returns the diagonal of an array whose axes come twice."""
    found = tensors.tensor(x)
    half = found.ndim // 2
    if not half or found.ndim % 2 or found.shape[:half] != found.shape[half:]:
        raise errors.InvalidArgumentError(
            "tensor_diag_part takes an array whose second half of axes is like its "
            f"first, received the shape {list(found.shape)}."
        )
    size = int(np.prod(found.shape[:half]))
    made: jax.Array = jnp.diagonal(found.reshape(size, size)).reshape(
        found.shape[:half]
    )
    return made


def band_part(x: Any, lower: Any, upper: Any) -> jax.Array:
    """Returns matrices with zeros outside a band around the diagonal."""
    found = _matrix("band_part", x, kinds.ALL)
    low = tensors.require_known("band_part", "num_lower", lower)
    high = tensors.require_known("band_part", "num_upper", upper)
    rows, columns = found.shape[-2:]
    if low > rows or high > columns:
        raise errors.InvalidArgumentError(
            f"num_lower and num_upper must be at most {rows} and {columns}, received "
            f"{low} and {high} in band_part."
        )
    # Below the diagonal it is positive. A negative limit means all, as in TensorFlow.
    distance = jnp.arange(rows)[:, None] - jnp.arange(columns)
    is_in = ((low < 0) | (distance <= low)) & ((high < 0) | (-distance <= high))
    return jnp.where(is_in, found, jnp.zeros((), found.dtype))


def inv(x: Any, adjoint: Any) -> jax.Array:
    """Returns the inverses of square matrices.

    Raises:
        InvalidArgumentError: eagerly, a matrix has none.
    """
    found = transpose_if(check_square("inv", x), False, adjoint)
    return check_finite("inv", "Input is not invertible.", jnp.linalg.inv(found))


def check_finite(name: str, message: str, made: jax.Array) -> jax.Array:
    """Returns a result; raises eagerly if none of its numbers is finite."""
    # For a singular matrix JAX gives infinity or NaN, and TensorFlow raises.
    is_known = not tensors.is_traced_tree(made)
    if is_known and made.size and not np.any(np.isfinite(np.asarray(made))):
        raise errors.InvalidArgumentError(f"{message} ({name})")
    return made


def det(x: Any) -> jax.Array:
    """Returns the determinants of square matrices."""
    made: jax.Array = jnp.linalg.det(check_square("det", x))
    return made


def slogdet(x: Any) -> tuple[jax.Array, jax.Array]:
    """Returns the signs of determinants, and the logarithms of their sizes."""
    sign, size = jnp.linalg.slogdet(check_square("slogdet", x))
    return sign, size


def logdet(x: Any) -> jax.Array:
    """Returns the logarithms of the determinants of positive definite matrices."""
    lower = cholesky("logdet", x)
    # The determinant is the square of the product of the factor's diagonal.
    places = jnp.real(jnp.diagonal(lower, axis1=-2, axis2=-1))
    return 2.0 * jnp.sum(jnp.log(places), -1)


def cholesky(name: str, x: Any) -> jax.Array:
    """Returns the lower triangular Cholesky factors of positive definite matrices."""
    # TensorFlow reads the lower half only.
    return jax.lax.linalg.cholesky(check_square(name, x), symmetrize_input=False)


def cholesky_solve(chol: Any, rhs: Any) -> jax.Array:
    """Returns the solutions of equations whose Cholesky factors are given."""
    factor, right = tensors.to_one_type("cholesky_solve", chol, rhs)
    factor = check_square("cholesky_solve", factor)
    return tensors.call(
        "cholesky_solve", jax.scipy.linalg.cho_solve, (factor, True), right
    )


def solve(matrix: Any, rhs: Any, adjoint: Any) -> jax.Array:
    """Returns the solutions of systems of linear equations.

    Raises:
        InvalidArgumentError: shapes do not fit or, eagerly, there is no solution.
    """
    left, right = tensors.to_one_type("solve", matrix, rhs)
    left = transpose_if(check_square("solve", left), False, adjoint)
    right = _matrix("solve", right)
    if left.shape[:-1] != right.shape[:-1]:
        raise errors.InvalidArgumentError(
            f"solve: matrix and rhs have the shapes {list(left.shape)} and "
            f"{list(right.shape)}, which must be equal but for the last axis."
        )
    made = jnp.linalg.solve(left, right)
    return check_finite("solve", "Input matrix is not invertible.", made)


def triangular_solve(matrix: Any, rhs: Any, lower: Any, adjoint: Any) -> jax.Array:
    """Returns the solutions of equations with a triangular matrix."""
    left, right = tensors.to_one_type("triangular_solve", matrix, rhs)
    left = check_square("triangular_solve", left)
    right = _matrix("triangular_solve", right)
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


def lstsq(matrix: Any, rhs: Any, regularizer: Any) -> jax.Array:
    """Returns least-squares solutions, computed from the normal equations.

    Of equations with fewer rows than columns it is the smallest solution.
    """
    left, right = tensors.to_one_type("lstsq", matrix, rhs)
    left, right = _matrix("lstsq", left), _matrix("lstsq", right)
    # As TensorFlow with `fast=True`. With fewer rows than columns the normal equations
    # are those of the other side, which give the smallest solution.
    other = jnp.conj(jnp.matrix_transpose(left))
    rows, columns = left.shape[-2:]
    extra = jnp.asarray(regularizer, left.dtype)
    if rows >= columns:
        inner = other @ left + extra * jnp.eye(columns, dtype=left.dtype)
        made: jax.Array = tensors.call("lstsq", jnp.linalg.solve, inner, other @ right)
        return made
    inner = left @ other + extra * jnp.eye(rows, dtype=left.dtype)
    solution: jax.Array = other @ tensors.call("lstsq", jnp.linalg.solve, inner, right)
    return solution


def svd(
    x: Any, full_matrices: Any, compute_uv: Any
) -> jax.Array | tuple[jax.Array, ...]:
    """Returns singular values, and left and right singular vectors as columns."""
    found = _matrix("svd", x)
    if not compute_uv:
        return jnp.linalg.svd(found, compute_uv=False)
    u, s, vh = jnp.linalg.svd(found, full_matrices=bool(full_matrices))
    # TensorFlow's order, and its V, where NumPy has the adjoint of V.
    return s, u, jnp.conj(jnp.matrix_transpose(vh))


def qr(x: Any, full_matrices: Any) -> tuple[jax.Array, jax.Array]:
    """Returns an orthogonal and an upper triangular matrix with a given product."""
    found = _matrix("qr", x)
    q, r = jnp.linalg.qr(found, mode="complete" if full_matrices else "reduced")
    return q, r


def eigh(x: Any) -> tuple[jax.Array, jax.Array]:
    """Returns eigenvalues and eigenvectors of symmetric matrices."""
    # TensorFlow reads the lower half only.
    values, vectors = jnp.linalg.eigh(check_square("eigh", x), symmetrize_input=False)
    return values, vectors


def eigvalsh(x: Any) -> jax.Array:
    """Returns the eigenvalues of symmetric matrices."""
    return eigh(x)[0]


def pinv(a: Any, rcond: Any) -> jax.Array:
    """Returns the pseudo-inverses of matrices."""
    found = _matrix("pinv", a)
    if rcond is None:
        # TensorFlow's default.
        rcond = 10.0 * max(found.shape[-2:]) * float(kinds.limits(found.dtype).eps)
    return jnp.linalg.pinv(found, rtol=rcond)


def matrix_rank(a: Any, tol: Any) -> jax.Array:
    """Returns the numbers of singular values that are not nearly zero."""
    found = _matrix("matrix_rank", a)
    sizes = jnp.linalg.svd(found, compute_uv=False)
    if tol is None:
        # TensorFlow's default.
        limit = kinds.limits(sizes.dtype).eps * max(found.shape[-2:])
        tol = limit * jnp.max(sizes, -1, keepdims=True)
    return jnp.sum(sizes > tol, -1, jnp.int32)


def cross(a: Any, b: Any) -> jax.Array:
    """Returns the cross products of vectors of three elements."""
    a, b = tensors.to_one_type("cross", a, b)
    if a.shape != b.shape or not a.ndim or a.shape[-1] != 3:
        raise errors.InvalidArgumentError(
            f"cross takes vectors of three elements, received {list(a.shape)} and "
            f"{list(b.shape)}."
        )
    return jnp.cross(a, b)


def matrix_transpose(a: Any, conjugate: Any) -> jax.Array:
    """Returns matrices with rows and columns exchanged.

    Raises:
        ValueError: the array has fewer than two axes.
    """
    found = tensors.tensor(a)
    if found.ndim < 2:
        raise ValueError(
            "Argument `a` should be a (batch) matrix with rank >= 2. Received `a` = "
            f"{a} with shape: {found.shape}."
        )
    return transpose_if(found, not conjugate, bool(conjugate))
