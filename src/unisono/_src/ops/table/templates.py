"""Makes the rows of functions of one array, and of two arrays of one type."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

X = "x: TensorLike, name: str | None = None"
XY = "x: TensorLike, y: TensorLike, name: str | None = None"


def unary(
    path: str,
    summary: str,
    fn: str,
    allowed: str = "NUMBERS",
    *,
    signature: str = X,
    also: tuple[str, ...] = (),
    example: str = "",
) -> Name:
    """Returns the row of a function of one array."""
    name, argument = path.rpartition(".")[2], signature.partition(":")[0]
    call = f'elementwise.apply_unary("{name}", {fn}, {argument}, kinds.{allowed})'
    return Name(path, summary, signature, call, also=also, example=example)


def binary(
    path: str,
    summary: str,
    fn: str,
    allowed: str = "NUMBERS",
    *,
    signature: str = XY,
    also: tuple[str, ...] = (),
    example: str = "",
    difference: str = "",
) -> Name:
    """Returns the row of a function of two arrays of one type."""
    name = path.rpartition(".")[2]
    x, y = (part.partition(":")[0].strip() for part in signature.split(",")[:2])
    # Folded: `unisono.shape(x)[0] * 2` must stay a number that can be a size.
    call = f'elementwise.apply_binary, "{name}", {fn}, {x}, {y}, kinds.{allowed}'
    return Name(
        path, summary, signature, f"tensors.fold_constants({call})", also=also,
         example=example,
        difference=difference,
    )  # fmt: skip


def in_math(*names: str) -> tuple[str, ...]:
    """Returns the paths of names below ``tf.math``."""
    return tuple(f"math.{name}" for name in names)
