"""Linear algebra: products, norms, diagonals and transposes of matrices."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import axis_functions, elementwise, kinds, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, Sizes, TensorLike

__all__ = [
    "adjoint",
    "band_part",
    "cross",
    "diag",
    "diag_part",
    "einsum",
    "global_norm",
    "matmul",
    "matrix_transpose",
    "matvec",
    "norm",
    "normalize",
    "set_diag",
    "tensor_diag",
    "tensor_diag_part",
    "tensordot",
    "trace",
]

_ORDERS = ("euclidean", "fro", 1, 2, np.inf)

_ONE_DIAGONAL = "It takes a single diagonal, not a band of several."


@array_function("matmul", "linalg.matmul")
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
    """Returns the matrix product of two arrays.

    >>> matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """
    a, b = tensors.to_one_type("matmul", a, b)
    left = transpose_if(to_matrices("matmul", a, kinds.NUMBERS), transpose_a, adjoint_a)
    right = transpose_if(
        to_matrices("matmul", b, kinds.NUMBERS), transpose_b, adjoint_b
    )
    wanted = None if output_type is None else tensors.usable_type(output_type)
    # The sums are computed in that type, too, not only stored in it.
    return tensors.call(
        "matmul", jnp.matmul, left, right, preferred_element_type=wanted
    )


@array_function("linalg.matvec")
def matvec(
    a: TensorLike,
    b: TensorLike,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the product of matrices and vectors."""
    a, b = tensors.to_one_type("matvec", a, b)
    left = transpose_if(to_matrices("matvec", a, kinds.NUMBERS), transpose_a, adjoint_a)
    if not b.ndim:
        raise errors.InvalidArgumentError("matvec takes vectors, received a scalar.")
    made = tensors.call("matvec", jnp.matmul, left, b[..., None])
    return made[..., 0]


@array_function("tensordot", "linalg.tensordot")
def tensordot(
    a: TensorLike, b: TensorLike, axes: Sizes, name: str | None = None
) -> jax.Array:
    """Returns the product of two arrays, summed over pairs of axes."""
    a, b = tensors.to_one_type("tensordot", a, b)
    kinds.check("tensordot", a.dtype, kinds.NUMBERS)
    wanted = tensors.require_known("tensordot", "axes", axes)
    return tensors.call("tensordot", jnp.tensordot, a, b, wanted)


@array_function("einsum", "linalg.einsum")
def einsum(equation: str, *inputs: TensorLike, **kwargs: object) -> jax.Array:
    """Returns the sums of products that an equation describes.

    Raises:
        TypeError: a keyword argument is unknown.

    >>> einsum("ij,j->i", [[1, 2], [3, 4]], [1, 1]).tolist()
    [3, 7]
    """
    kwargs.pop("name", None)
    kwargs.pop("optimize", None)
    if kwargs:
        raise TypeError(f"Invalid keyword arguments for einsum: {', '.join(kwargs)}.")
    found = tensors.to_one_type("einsum", *inputs)
    kinds.check("einsum", found[0].dtype, kinds.NUMBERS)
    return tensors.call("einsum", jnp.einsum, equation, *found)


@array_function("norm", "linalg.norm")
def norm(
    tensor: TensorLike,
    ord: str | float = "euclidean",
    axis: Sizes | None = None,
    keepdims: bool | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the norm of vectors, or of matrices if two axes are given."""
    return _norm("norm", tensor, ord, axis, keepdims)


@array_function("linalg.global_norm")
def global_norm(
    t_list: Sequence[TensorLike | None], name: str | None = None
) -> jax.Array:
    """Returns the norm of all elements of several arrays."""
    return elementwise.global_norm("global_norm", t_list)


@array_function("linalg.normalize")
def normalize(
    tensor: TensorLike,
    ord: str | float = "euclidean",
    axis: Sizes | None = None,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns an array divided by its norm, and the norm."""
    found = tensors.tensor(tensor)
    size = _norm("normalize", found, ord, axis, True)
    return found / size, size


@array_function("linalg.trace")
def trace(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the sums of the diagonals."""
    found = to_matrices("trace", x, kinds.NUMBERS)
    return jnp.trace(found, axis1=-2, axis2=-1, dtype=found.dtype)


@array_function("linalg.diag", difference=_ONE_DIAGONAL)
def diag(
    diagonal: TensorLike,
    name: str | None = "diag",
    k: Sizes = 0,
    num_rows: int = -1,
    num_cols: int = -1,
    padding_value: float = 0,
    align: str = "RIGHT_LEFT",
) -> jax.Array:
    """Returns matrices with a given diagonal."""
    found = tensors.tensor(diagonal)
    if not found.ndim:
        raise errors.InvalidArgumentError(
            "diagonal must be at least 1-dim in diag, received a scalar."
        )
    offset = _check_diagonal("diag", k)
    size = found.shape[-1]
    height = width = size + abs(offset)
    if num_rows != -1 or num_cols != -1:
        height = tensors.require_known("diag", "num_rows", num_rows)
        width = tensors.require_known("diag", "num_cols", num_cols)
        height = size + max(-offset, 0) if height == -1 else height
        width = size + max(offset, 0) if width == -1 else width
    fits = min(height - max(-offset, 0), width - max(offset, 0)) == size
    if not fits:
        raise errors.InvalidArgumentError(
            f"The number of rows {height} and of columns {width} does not fit a "
            f"diagonal of {size} elements in diag."
        )
    # The default fits every type, bools too.
    filler = (
        False
        if isinstance(padding_value, int) and padding_value == 0
        else padding_value
    )
    made = jnp.full((*found.shape[:-1], height, width), filler, found.dtype)
    places = jnp.arange(size)
    # A positive offset is to the right of the main diagonal, a negative one below it.
    first, second = places + max(-offset, 0), places + max(offset, 0)
    return made.at[..., first, second].set(found)


@array_function(
    "linalg.diag_part",
    difference="It returns a single diagonal, not a band of several.",
)
def diag_part(
    input: TensorLike,
    name: str | None = "diag_part",
    k: Sizes = 0,
    padding_value: float = 0,
    align: str = "RIGHT_LEFT",
) -> jax.Array:
    """Returns the diagonals of matrices."""
    found = to_matrices("diag_part", input, kinds.ALL)
    offset = _check_diagonal("diag_part", k)
    if not -found.shape[-2] < offset < found.shape[-1]:
        raise errors.InvalidArgumentError(
            f"lower_diag_index is out of bound: {offset} in diag_part."
        )
    made: jax.Array = jnp.diagonal(found, offset, -2, -1)
    return made


@array_function("linalg.set_diag", difference=_ONE_DIAGONAL)
def set_diag(
    input: TensorLike,
    diagonal: TensorLike,
    name: str | None = "set_diag",
    k: Sizes = 0,
    align: str = "RIGHT_LEFT",
) -> jax.Array:
    """Returns matrices whose diagonal is replaced."""
    found, new = tensors.to_one_type("set_diag", input, diagonal)
    found = to_matrices("set_diag", found, kinds.ALL)
    offset = _check_diagonal("set_diag", k)
    size = jnp.diagonal(found, offset, -2, -1).shape
    if size != new.shape:
        raise errors.InvalidArgumentError(
            f"set_diag: the diagonal has shape {list(size)}, received "
            f"{list(new.shape)}."
        )
    places = jnp.arange(size[-1])
    first, second = places + max(-offset, 0), places + max(offset, 0)
    return found.at[..., first, second].set(new)


@array_function("linalg.tensor_diag")
def tensor_diag(diagonal: TensorLike, name: str | None = None) -> jax.Array:
    """Returns an array with the given diagonal elements."""
    found = tensors.tensor(diagonal)
    if not found.ndim:
        raise errors.InvalidArgumentError("tensor_diag takes arrays with axes.")
    return jnp.diag(found.reshape(-1)).reshape(*found.shape, *found.shape)


@array_function("linalg.tensor_diag_part")
def tensor_diag_part(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the diagonal elements of an array."""
    found = tensors.tensor(input)
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


@array_function("linalg.band_part")
def band_part(
    input: TensorLike, num_lower: int, num_upper: int, name: str | None = None
) -> jax.Array:
    """Returns matrices with zeros outside a band."""
    found = to_matrices("band_part", input, kinds.ALL)
    low = tensors.require_known("band_part", "num_lower", num_lower)
    high = tensors.require_known("band_part", "num_upper", num_upper)
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


@array_function("linalg.matrix_transpose")
def matrix_transpose(
    a: TensorLike, name: str | None = "matrix_transpose", conjugate: bool = False
) -> jax.Array:
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


@array_function("linalg.adjoint")
def adjoint(matrix: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the conjugate transposes of matrices."""
    return matrix_transpose(matrix, conjugate=True)


@array_function("linalg.cross")
def cross(a: TensorLike, b: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the cross products of vectors of three elements."""
    a, b = tensors.to_one_type("cross", a, b)
    if a.shape != b.shape or not a.ndim or a.shape[-1] != 3:
        raise errors.InvalidArgumentError(
            f"cross takes vectors of three elements, received {list(a.shape)} and "
            f"{list(b.shape)}."
        )
    return jnp.cross(a, b)


def to_matrices(name: str, x: TensorLike, allowed: str = kinds.INEXACT) -> jax.Array:
    """Returns an array of at least two axes."""
    found = tensors.tensor(x)
    kinds.check(name, found.dtype, allowed)
    if found.ndim < 2:
        raise errors.InvalidArgumentError(
            f"{name} takes arrays of at least two axes, received the shape "
            f"{list(found.shape)}."
        )
    return found


def check_square(name: str, x: TensorLike) -> jax.Array:
    """Returns the array of square matrices.

    Raises:
        InvalidArgumentError: the matrices are not square.
    """
    found = to_matrices(name, x)
    if found.shape[-1] != found.shape[-2]:
        raise errors.InvalidArgumentError(
            f"{name} takes square matrices, received the shape {list(found.shape)}."
        )
    return found


def transpose_if(x: jax.Array, transpose: bool, adjoint: bool) -> jax.Array:
    """Returns matrices, transposed or conjugate transposed if asked."""
    if transpose and adjoint:
        raise ValueError(
            "Only one of transpose and adjoint can be True for the same matrix."
        )
    made: jax.Array = jnp.matrix_transpose(x) if transpose or adjoint else x
    return jnp.conj(made) if adjoint else made


def _norm(
    name: str,
    x: TensorLike,
    ord: str | float,
    axis: Sizes | None,
    keepdims: bool | None,
) -> jax.Array:
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
    axes = axis_functions.find_axes(name, axis, found.ndim)
    if is_matrix and ord in (1, 2, np.inf):
        made: jax.Array = jnp.linalg.norm(found, ord, axes, keepdims=keep)
        return made
    # Over any other axes, and for "fro", a norm is that of all elements as a vector.
    sizes = jnp.abs(found)
    if ord == 1:
        return axis_functions.add_up(sizes, axes, keep)
    if ord == np.inf:
        return jnp.max(sizes, axes, keepdims=keep)
    power = 2 if isinstance(ord, str) else ord
    total = jnp.sum(sizes**power, axes, keepdims=keep)
    if power == 2:
        return jnp.sqrt(total).astype(found.dtype)
    root: jax.Array = total ** (1.0 / power)
    return root


def _check_diagonal(name: str, k: Sizes) -> int:
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
