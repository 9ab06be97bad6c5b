"""When the difference of a name counts: for which calls, and in which functions.

A name's difference is a sentence for all of its calls. Most of them concern a few calls
only, such as a cast to integers, and a line is told nothing that cannot happen there.
"""

from __future__ import annotations

from unisono._src.cli.check import package_names
from unisono._src.cli.check.scopes import CallArguments

# The place of an argument that has none.
BY_NAME = -1
SILENT, TELLS, FAILS = "silent", "tells", "fails"

_SIXTY_FOUR = ("int64", "float64", "uint64", "complex128", "double")
_INTEGERS = ("int", "uint8", "int8", "uint16", "int16", "uint32", "int32")

# Sentences about programs that are wrong, about last digits, about more than TensorFlow
# takes, or about numbers that nobody expects to be certain ones.
_NEVER = frozenset(
    (
        "Tensor",
        "TensorShape",
        "Tensor.dtype",
        "Tensor.shape",
        "broadcast_dynamic_shape",
        "divide",
        "dtypes.DType",
        "dtypes.as_dtype",
        "image.adjust_brightness",
        "image.adjust_contrast",
        "image.adjust_hue",
        "image.adjust_saturation",
        "image.convert_image_dtype",
        "image.resize",
        "image.resize_with_pad",
        "image.rgb_to_grayscale",
        "io.decode_bmp",
        "io.decode_gif",
        "io.decode_image",
        "io.decode_jpeg",
        "io.decode_png",
        "io.parse_example",
        "io.parse_sequence_example",
        "io.parse_single_example",
        "io.parse_single_sequence_example",
        "linspace",
        "lookup.KeyValueTensorInitializer",
        "lookup.StaticHashTable",
        "lookup.StaticVocabularyTable",
        "math.divide_no_nan",
        "math.floordiv",
        "math.floormod",
        "pow",
        "random.normal",
        "random.truncated_normal",
        "random.uniform",
        "rank",
        "shape",
        "size",
        "train.latest_checkpoint",
        "truediv",
        "truncatediv",
        "truncatemod",
    )
)

# The argument without which a name does not differ: its name, and its place.
_ONLY_WITH = {
    "TensorArray": ("dynamic_size", 2),
    "case": ("exclusive", 2),
    "data.Dataset.cache": ("filename", 0),
    "data.Dataset.shuffle": ("seed", 1),
    "image.random_brightness": ("seed", 2),
    "image.random_contrast": ("seed", 3),
    "image.random_crop": ("seed", 2),
    "image.random_flip_left_right": ("seed", 1),
    "image.random_flip_up_down": ("seed", 1),
    "image.random_hue": ("seed", 2),
    "image.random_saturation": ("seed", 3),
    "linalg.diag": ("k", 2),
    "linalg.diag_part": ("k", 2),
    "linalg.set_diag": ("k", 3),
    "nn.dropout": ("seed", 3),
    "random.categorical": ("seed", 3),
    "random.gamma": ("seed", 4),
    "random.poisson": ("seed", 3),
    "random.shuffle": ("seed", 1),
}

# The argument with which a name does not differ.
_ONLY_WITHOUT = {
    "autograph.experimental.set_loop_options": ("maximum_iterations", 2),
    "math.bincount": ("maxlength", 3),
    "math.confusion_matrix": ("num_classes", 2),
    "math.count_nonzero": ("dtype", 3),
    "sequence_mask": ("maxlen", 1),
    "where": ("x", 1),
    "while_loop": ("maximum_iterations", 7),
}

# The argument that has a type, of names that make arrays.
_TYPES = {
    "Variable": ("dtype", BY_NAME),
    "cast": ("dtype", 1),
    "constant": ("dtype", 1),
    "convert_to_tensor": ("dtype", 1),
    "eye": ("dtype", 3),
    "ones": ("dtype", 1),
    "random.uniform": ("dtype", 3),
    "range": ("dtype", 3),
    "zeros": ("dtype", 1),
}

# Names that give positions and counts, of 64 bits in TensorFlow.
_POSITIONS = ("argmax", "argmin", "math.count_nonzero", "where")

# Texts in regular expressions that are refused here.
_REFUSED_EXPRESSIONS = ("\\p", "\\P", "[:^", "(?i")

# What a sentence says of a call that does not run in a compiled function.
_FAILING = (
    "cannot be used in a compiled function",
    "outside compiled functions",
    "In a compiled function it needs",
)


def weigh(
    path: str, told: str, call: CallArguments | None, where: str
) -> tuple[str, str]:
    """Returns whether a difference is silent, tells or fails, and the sentence.

    Args:
        path: the first of the name's paths, without ``tf.``.
        told: how it differs; "" if it does not.
        call: the arguments, if it is called.
        where: in what kind of function it stands; see `Use`.
    """
    # In functions of datasets NumPy computes, and has 64 bits.
    is_hosted, is_compiled = where == "hosted", where == "compiled"
    kind = _type(path, call) if path in _TYPES and call is not None else ""
    if kind in _SIXTY_FOUR and not is_hosted:
        return TELLS, package_names.everyday_difference("constant")[1]
    if path in (_POSITIONS if is_hosted else ()) or (path in _TYPES and path != "cast"):
        return SILENT, ""
    if not told or path in _NEVER or _is_excepted(path, call):
        return SILENT, ""
    if is_compiled and any(each in told for each in _FAILING):
        return FAILS, told
    # Without `x` and `y` the positions are of another type everywhere.
    is_of_compiled = "ompiled" in told and path != "where"
    return (TELLS, told) if is_compiled or not is_of_compiled else (SILENT, "")


def _type(path: str, call: CallArguments) -> str:
    return call.text(*_TYPES[path]).removeprefix("'")


def _is_excepted(path: str, call: CallArguments | None) -> bool:
    """Returns whether the arguments of a call except it from the difference."""
    if call is None:
        return path in _ONLY_WITH or path in _ONLY_WITHOUT or path == "cast"
    if path == "cast":
        return _type(path, call) not in (*_INTEGERS, *_SIXTY_FOUR)
    if path in ("argmax", "argmin"):
        return call.text("output_type", 2) == "int32"
    if path == "config.set_visible_devices":
        return call.text("device_type", 1) != "'CPU"
    if path in ("strings.regex_full_match", "strings.regex_replace"):
        pattern = call.text("pattern", 1)
        return not any(refused in pattern for refused in _REFUSED_EXPRESSIONS)
    if path in _ONLY_WITH:
        return not call.has(*_ONLY_WITH[path])
    return path in _ONLY_WITHOUT and call.has(*_ONLY_WITHOUT[path])
