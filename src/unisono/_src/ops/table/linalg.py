"""Linear algebra: products, norms, decompositions and solutions of matrices."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_NAME = "name: str | None = None"
_INPUT = f"input: TensorLike, {_NAME}"
_KNOWN = (
    "In a compiled function matrices without a solution give numbers that are not "
    "finite; eagerly they are an error, as in TensorFlow."
)

ROWS = (
    Name("matmul", "Returns the product of matrices.",
         "a: TensorLike, b: TensorLike, transpose_a: bool = False, "
         "transpose_b: bool = False, adjoint_a: bool = False, adjoint_b: bool = False, "
         "a_is_sparse: bool = False, b_is_sparse: bool = False, "
         "output_type: DType = None, grad_a: bool = False, grad_b: bool = False, "
         f"{_NAME}",
         "matrices.matmul(a, b, (transpose_a, transpose_b), (adjoint_a, adjoint_b), "
         "output_type)", also=("linalg.matmul",),
         example=">>> matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist()\n[[11.0]]"),
    Name("linalg.matvec", "Returns the product of matrices and vectors.",
         "a: TensorLike, b: TensorLike, transpose_a: bool = False, "
         "adjoint_a: bool = False, a_is_sparse: bool = False, "
         f"b_is_sparse: bool = False, {_NAME}",
         "matrices.matvec(a, b, transpose_a, adjoint_a)"),
    Name("tensordot", "Returns the product of arrays, summed over pairs of axes.",
         f"a: TensorLike, b: TensorLike, axes: Sizes, {_NAME}",
         "matrices.tensordot(a, b, axes)", also=("linalg.tensordot",)),
    Name("einsum", "Returns the sums of products that an equation describes.",
         "equation: str, *inputs: TensorLike, **kwargs: object",
         "matrices.einsum(equation, *inputs, **kwargs)", also=("linalg.einsum",),
         example='>>> einsum("ij,j->i", [[1, 2], [3, 4]], [1, 1]).tolist()\n[3, 7]'),
    Name("norm", "Returns the norm of vectors, or of matrices if two axes are given.",
         "tensor: TensorLike, ord: str | float = 'euclidean', "
         f"axis: Sizes | None = None, keepdims: bool | None = None, {_NAME}",
         'matrices.norm("norm", tensor, ord, axis, keepdims)', also=("linalg.norm",)),
    Name("linalg.normalize", "Returns arrays divided by their norm, and the norm.",
         "tensor: TensorLike, ord: str | float = 'euclidean', "
         f"axis: Sizes | None = None, {_NAME} -> tuple[jax.Array, jax.Array]",
         "matrices.normalize(tensor, ord, axis)"),
    Name("linalg.trace", "Returns the sums of the diagonals.",
         f"x: TensorLike, {_NAME}", "matrices.trace(x)"),
    Name("linalg.diag", "Returns matrices with a given diagonal.",
         "diagonal: TensorLike, name: str | None = 'diag', k: Sizes = 0, "
         "num_rows: int = -1, num_cols: int = -1, padding_value: float = 0, "
         "align: str = 'RIGHT_LEFT'",
         "matrices.diag(diagonal, k, num_rows, num_cols, padding_value)",
         difference="It takes one diagonal, not a band of several."),
    Name("linalg.diag_part", "Returns the diagonals of matrices.",
         "input: TensorLike, name: str | None = 'diag_part', k: Sizes = 0, "
         "padding_value: float = 0, align: str = 'RIGHT_LEFT'",
         "matrices.diag_part(input, k)",
         difference="It gives one diagonal, not a band of several."),
    Name("linalg.set_diag", "Returns matrices with another diagonal.",
         "input: TensorLike, diagonal: TensorLike, name: str | None = 'set_diag', "
         "k: Sizes = 0, align: str = 'RIGHT_LEFT'",
         "matrices.set_diag(input, diagonal, k)",
         difference="It takes one diagonal, not a band of several."),
    Name("linalg.tensor_diag", "Returns an array with the given diagonal elements.",
         f"diagonal: TensorLike, {_NAME}", "matrices.tensor_diag(diagonal)"),
    Name("linalg.tensor_diag_part", "Returns the diagonal elements of an array.",
         _INPUT, "matrices.tensor_diag_part(input)"),
    Name("linalg.band_part", "Returns matrices with zeros outside a band.",
         f"input: TensorLike, num_lower: int, num_upper: int, {_NAME}",
         "matrices.band_part(input, num_lower, num_upper)"),
    Name("linalg.matrix_transpose", "Returns matrices with rows and columns exchanged.",
         "a: TensorLike, name: str | None = 'matrix_transpose', "
         "conjugate: bool = False",
         "matrices.matrix_transpose(a, conjugate)"),
    Name("linalg.adjoint", "Returns matrices conjugated and transposed.",
         f"matrix: TensorLike, {_NAME}", "matrices.matrix_transpose(matrix, True)"),
    Name("linalg.inv", "Returns the inverses of square matrices.",
         f"input: TensorLike, adjoint: bool = False, {_NAME}",
         "matrices.inv(input, adjoint)", difference=_KNOWN),
    Name("linalg.det", "Returns the determinants of square matrices.", _INPUT,
         "matrices.det(input)"),
    Name("linalg.slogdet", "Returns the signs and logarithms of determinants.",
         f"{_INPUT} -> tuple[jax.Array, jax.Array]", "matrices.slogdet(input)"),
    Name("linalg.logdet", "Returns the logarithms of determinants.",
         f"matrix: TensorLike, {_NAME}", "matrices.logdet(matrix)"),
    Name("linalg.cholesky", "Returns the Cholesky factors of matrices.", _INPUT,
         'matrices.cholesky("cholesky", input)'),
    Name("linalg.cholesky_solve", "Returns solutions from given Cholesky factors.",
         f"chol: TensorLike, rhs: TensorLike, {_NAME}",
         "matrices.cholesky_solve(chol, rhs)"),
    Name("linalg.solve", "Returns the solutions of systems of linear equations.",
         f"matrix: TensorLike, rhs: TensorLike, adjoint: bool = False, {_NAME}",
         "matrices.solve(matrix, rhs, adjoint)", difference=_KNOWN),
    Name("linalg.triangular_solve", "Returns the solutions for triangular matrices.",
         "matrix: TensorLike, rhs: TensorLike, lower: bool = True, "
         f"adjoint: bool = False, {_NAME}",
         "matrices.triangular_solve(matrix, rhs, lower, adjoint)"),
    Name("linalg.lstsq", "Returns least-squares solutions.",
         "matrix: TensorLike, rhs: TensorLike, l2_regularizer: float = 0.0, "
         f"fast: bool = True, {_NAME}",
         "matrices.lstsq(matrix, rhs, l2_regularizer)"),
    Name("linalg.svd", "Returns singular values and vectors.",
         "tensor: TensorLike, full_matrices: bool = False, "
         f"compute_uv: bool = True, {_NAME} -> jax.Array | tuple[jax.Array, ...]",
         "matrices.svd(tensor, full_matrices, compute_uv)"),
    Name("linalg.qr", "Returns orthogonal and triangular factors of matrices.",
         f"input: TensorLike, full_matrices: bool = False, {_NAME}"
         " -> tuple[jax.Array, jax.Array]", "matrices.qr(input, full_matrices)"),
    Name("linalg.eigh", "Returns eigenvalues and eigenvectors of symmetric matrices.",
         f"tensor: TensorLike, {_NAME} -> tuple[jax.Array, jax.Array]",
         "matrices.eigh(tensor)"),
    Name("linalg.eigvalsh", "Returns the eigenvalues of symmetric matrices.",
         f"tensor: TensorLike, {_NAME}", "matrices.eigvalsh(tensor)"),
    Name("linalg.pinv", "Returns the pseudo-inverses of matrices.",
         "a: TensorLike, rcond: TensorLike | None = None, "
         f"validate_args: bool = False, {_NAME}", "matrices.pinv(a, rcond)"),
    Name("linalg.matrix_rank", "Returns the ranks of matrices.",
         "a: TensorLike, tol: TensorLike | None = None, "
         f"validate_args: bool = False, {_NAME}", "matrices.matrix_rank(a, tol)"),
    Name("linalg.cross", "Returns the cross products of vectors of three elements.",
         f"a: TensorLike, b: TensorLike, {_NAME}", "matrices.cross(a, b)"),
)  # fmt: skip
