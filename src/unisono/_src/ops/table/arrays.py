"""Arrays: making them, their shapes, joining and parting."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_INPUT = "input: TensorLike, name: str | None = None"
_LIKE = (
    "input: TensorLike, dtype: DType = None, name: str | None = None, "
    "layout: object = None"
)
_MADE = (
    "shape: Sizes, dtype: DType = dtypes.float32, name: str | None = None, "
    "layout: object = None"
)
_KNOWN = (
    "While a function is compiled it gives NumPy's numbers, because XLA needs sizes "
    "that are known: they can be a shape again."
)
_WIDE = (
    "Types of 64 bits become those of 32 bits unless JAX has them, with a warning; a "
    "number that does not fit is an `OverflowError`."
)

MAKING = (
    Name("constant", "Returns an array of the given numbers.",
         "value: TensorLike, dtype: DType = None, shape: Sizes | None = None, "
         'name: str | None = "Const"',
         "making.constant(value, dtype, shape)", difference=_WIDE,
         example=">>> constant([1, 2]).dtype.name, constant(1.5).dtype.name\n"
         "('int32', 'float32')"),
    Name("convert_to_tensor", "Returns the array of a number, list, variable or array.",
         "value: TensorLike, dtype: DType = None, dtype_hint: DType = None, "
         "name: str | None = None",
         "making.convert(value, dtype, dtype_hint)", difference=_WIDE),
    Name("identity", "Returns a new array of the same elements.", _INPUT,
         "making.identity(input)"),
    Name("cast", "Returns the elements in another type.",
         "x: TensorLike, dtype: DType, name: str | None = None",
         "tensors.fold_constants(making.cast, x, dtype)",
         difference="A float beyond the range of a type of integers becomes its limit, "
         "and NaN becomes 0; in TensorFlow both are undefined.",
         example='>>> cast([0.5, -1.7], "int32").tolist()\n[0, -1]'),
    Name("saturate_cast", "Returns the elements in another type, within its limits.",
         "value: TensorLike, dtype: DType, name: str | None = None",
         "making.saturate_cast(value, dtype)"),
    Name("zeros", "Returns an array of zeros.", _MADE,
         'making.full("zeros", shape, 0, dtype)',
         example=">>> zeros([2, 3]).shape\n(2, 3)"),
    Name("ones", "Returns an array of ones.", _MADE,
         'making.full("ones", shape, 1, dtype)'),
    Name("fill", "Returns an array with one value everywhere.",
         "dims: Sizes, value: TensorLike, name: str | None = None, "
         "layout: object = None", "making.fill(dims, value)"),
    Name("zeros_like", "Returns zeros of the shape and type of an array.", _LIKE,
         "making.full_like(input, 0, dtype)"),
    Name("ones_like", "Returns ones of the shape and type of an array.", _LIKE,
         "making.full_like(input, 1, dtype)"),
    Name("eye", "Returns an identity matrix, or several.",
         "num_rows: int, num_columns: int | None = None, "
         "batch_shape: Sizes | None = None, dtype: DType = dtypes.float32, "
         "name: str | None = None",
         "making.eye(num_rows, num_columns, batch_shape, dtype)",
         also=("linalg.eye",)),
    Name("range", "Returns numbers from `start` to before `limit`, `delta` apart.",
         "start: TensorLike, limit: TensorLike | None = None, delta: TensorLike = 1, "
         'dtype: DType = None, name: str | None = "range"',
         "making.count(start, limit, delta, dtype)",
         example=">>> range(3).tolist(), range(1, 2, 0.5).tolist()\n"
         "([0, 1, 2], [1.0, 1.5])"),
    Name("linspace", "Returns evenly spaced numbers, both ends included.",
         "start: TensorLike, stop: TensorLike, num: int, name: str | None = None, "
         "axis: int = 0", "making.linspace(start, stop, num, axis)",
         difference="Between integers the numbers are float32 unless JAX has 64-bit "
         "types."),
    Name("one_hot", "Returns ones at the given positions, and zeros elsewhere.",
         "indices: TensorLike, depth: int, on_value: TensorLike | None = None, "
         "off_value: TensorLike | None = None, axis: int | None = None, "
         "dtype: DType = None, name: str | None = None",
         "making.one_hot(indices, depth, on_value, off_value, axis, dtype)",
         example=">>> one_hot([1], 3).tolist()\n[[0.0, 1.0, 0.0]]"),
    Name("sequence_mask", "Returns rows that begin with so many true elements.",
         "lengths: TensorLike, maxlen: int | None = None, "
         "dtype: DType = dtypes.bool, name: str | None = None",
         "making.sequence_mask(lengths, maxlen, dtype)",
         difference="In a compiled function it needs `maxlen`."),
    Name("shape", "Returns the sizes of the axes of an array.",
         "input: TensorLike, out_type: DType = None, name: str | None = None",
         "making.shape(input, out_type)", difference=_KNOWN),
    Name("size", "Returns the number of elements of an array.",
         "input: TensorLike, out_type: DType = None, name: str | None = None",
         "making.size(input, out_type)", difference=_KNOWN),
    Name("rank", "Returns the number of axes of an array.", _INPUT,
         "making.rank(input)", difference=_KNOWN),
    Name("stop_gradient", "Returns the same elements, which count as constants.",
         _INPUT, "making.stop_gradient(input)"),
)  # fmt: skip

GRADIENTS = (
    Name("custom_gradient",
         "Returns a function whose gradient the function itself defines.",
         target="custom_gradients:custom_gradient"),
    Name("grad_pass_through",
         "Returns a function whose gradient is that of the identity.",
         target="custom_gradients:grad_pass_through"),
    Name("recompute_grad",
         "Returns a function that is computed again for its gradient.",
         target="custom_gradients:recompute_grad"),
)  # fmt: skip

SHAPING = (
    Name("reshape", "Returns the elements in another shape; one size may be -1.",
         "tensor: TensorLike, shape: Sizes, name: str | None = None",
         "tensors.fold_constants(shaping.reshape, tensor, shape)",
         example=">>> reshape([1, 2, 3, 4], [2, -1]).tolist()\n[[1, 2], [3, 4]]"),
    Name("transpose", "Returns an array with its axes in another order.",
         "a: TensorLike, perm: Sizes | None = None, conjugate: bool = False, "
         'name: str | None = "transpose"', "shaping.transpose(a, perm, conjugate)"),
    Name("concat", "Returns arrays one after the other along an axis.",
         'values: Sequence[TensorLike] | TensorLike, axis: int, '
         'name: str | None = "concat"',
         "tensors.fold_constants(shaping.concat, values, axis)",
         example=">>> concat([[1], [2, 3]], 0).tolist()\n[1, 2, 3]"),
    Name("stack", "Returns arrays side by side along a new axis.",
         'values: Sequence[TensorLike] | TensorLike, axis: int = 0, '
         'name: str | None = "stack"',
         "tensors.fold_constants(shaping.stack, values, axis)"),
    Name("unstack", "Returns the parts of an array along an axis, as a list.",
         "value: TensorLike, num: int | None = None, axis: int = 0, "
         'name: str | None = "unstack" -> list[jax.Array]',
         "shaping.unstack(value, num, axis)"),
    Name("split", "Returns the parts of an array along an axis, as a list.",
         "value: TensorLike, num_or_size_splits: Sizes, axis: int = 0, "
         'num: int | None = None, name: str | None = "split" -> list[jax.Array]',
         "shaping.split(value, num_or_size_splits, axis, num)",
         example=">>> [x.tolist() for x in split([1, 2, 3], [1, 2])]\n[[1], [2, 3]]"),
    Name("tile", "Returns an array repeated as a whole along each axis.",
         "input: TensorLike, multiples: Sizes, name: str | None = None",
         "shaping.tile(input, multiples)"),
    Name("repeat", "Returns an array in which every element is repeated.",
         "input: TensorLike, repeats: Sizes, axis: int | None = None, "
         "name: str | None = None", "shaping.repeat(input, repeats, axis)"),
    Name("squeeze", "Returns an array without axes of size 1.",
         "input: TensorLike, axis: Sizes | None = None, name: str | None = None",
         "tensors.fold_constants(shaping.squeeze, input, axis)"),
    Name("expand_dims", "Returns an array with one more axis of size 1.",
         "input: TensorLike, axis: int, name: str | None = None",
         "tensors.fold_constants(shaping.expand_dims, input, axis)"),
    Name("broadcast_to", "Returns an array repeated to another shape.",
         "input: TensorLike, shape: Sizes, name: str | None = None",
         "shaping.broadcast_to(input, shape)"),
    Name("pad", "Returns an array with more elements before and after it.",
         "tensor: TensorLike, paddings: Sizes, mode: str = 'CONSTANT', "
         "constant_values: TensorLike = 0, name: str | None = None",
         "shaping.pad(tensor, paddings, mode, constant_values)",
         example=">>> pad([1, 2], [[1, 0]]).tolist()\n[0, 1, 2]"),
    Name("reverse", "Returns an array in the opposite order along axes.",
         "tensor: TensorLike, axis: Sizes, name: str | None = None",
         "tensors.fold_constants(shaping.reverse, tensor, axis)"),
    Name("roll", "Returns an array rotated along axes.",
         "input: TensorLike, shift: TensorLike, axis: Sizes, name: str | None = None",
         "shaping.roll(input, shift, axis)"),
    Name("reverse_sequence", "Returns rows, the first elements of each reversed.",
         "input: TensorLike, seq_lengths: TensorLike, seq_axis: int | None = None, "
         "batch_axis: int | None = None, name: str | None = None",
         "shaping.reverse_sequence(input, seq_lengths, seq_axis, batch_axis)"),
    Name("meshgrid", "Returns the coordinates of a grid, one array for each axis.",
         "*args: TensorLike, **kwargs: str -> list[jax.Array]",
         "shaping.meshgrid(*args, **kwargs)"),
    Name("slice", "Returns a part of an array, from `begin` on.",
         "input_: TensorLike, begin: Sizes, size: Sizes, name: str | None = None",
         "tensors.fold_constants(shaping.cut, input_, begin, size)",
         example=">>> slice([1, 2, 3, 4], [1], [2]).tolist()\n[2, 3]"),
    Name("strided_slice", "Returns ``input_[begin:end:strides]``.",
         "input_: TensorLike, begin: Sizes, end: Sizes, strides: Sizes | None = None, "
         "begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, "
         "new_axis_mask: int = 0, shrink_axis_mask: int = 0, var: object = None, "
         "name: str | None = None",
         "shaping.strided_slice(input_, begin, end, strides, (begin_mask, end_mask, "
         "ellipsis_mask, new_axis_mask, shrink_axis_mask))"),
    Name("ensure_shape", "Returns an array after checking its shape.",
         "x: TensorLike, shape: Sequence[int | None], name: str | None = None",
         "shaping.ensure_shape(x, shape)"),
)  # fmt: skip

ROWS = (*MAKING, *GRADIENTS, *SHAPING)
