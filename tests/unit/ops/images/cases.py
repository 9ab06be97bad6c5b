"""The calls of image functions whose results are recorded.

In a call ``f`` is the function of the row and ``tf`` the library. Capital letters are
arrays, and ``FILES`` has the contents of tiny image files.
"""

import base64
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
METHODS = (
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian",
    "mitchellcubic",
)  # fmt: skip


def make_arrays():
    """Returns the arrays by their letters; both libraries make the same ones."""
    made = np.random.RandomState(7)
    arrays = {
        "Q": made.randint(0, 256, (13, 17, 3)).astype(np.uint8),
        "F": made.rand(6, 9, 3).astype(np.float32),
        "B": made.rand(4, 5, 4, 3).astype(np.float32),
        "H": made.rand(5, 4, 3).astype(np.float16),
        "I": made.randint(0, 2**31 - 1, (5, 4, 3)).astype(np.int32),
        "L": made.randint(0, 2**62, (5, 4, 3)).astype(np.int64),
        "U": made.randint(0, 65536, (5, 4, 3)).astype(np.uint16),
        "J": made.randint(-128, 128, (5, 4, 3)).astype(np.int8),
        "G": made.randint(0, 256, (5, 4, 1)).astype(np.uint8),
        "O": made.rand(1, 1, 3).astype(np.float32),
        "N": made.rand(1, 6, 3).astype(np.float32),
        "Z": np.zeros((0, 5, 4, 3), np.float32),
        "E": np.repeat(made.rand(5, 4, 1), 3, -1).astype(np.float32),
    }
    corner = made.rand(40, 2) * 10
    arrays["X"] = np.concatenate([corner, corner + made.rand(40, 2) * 4], 1).astype("f")
    arrays["S"] = np.round(made.rand(40), 1).astype("f")
    return arrays


def read_files():
    """Returns the contents of the image files by their names."""
    stored = json.loads((HERE / "files.json").read_text(encoding="utf-8"))
    return {name: base64.b64decode(text) for name, text in stored.items()}


def _resizes():
    sizes = {"Q": "(5, 12)", "B": "(7, 3)", "O": "(2, 3)", "N": "(3, 2)", "G": "(9, 7)"}
    for method in METHODS:
        for antialias in (False, True):
            for name, size in sizes.items():
                yield f"f({name}, {size}, {method!r}, antialias={antialias})"
    for name in "HIJLUZ":
        for method in ("bilinear", "nearest", "area"):
            yield f"f({name}, (4, 6), {method!r})"
    yield from (
        "f(Q, (13, 17))",
        "f(Q, (8, 8), preserve_aspect_ratio=True)",
        "f(Q, (40, 5), preserve_aspect_ratio=True)",
        "f(Q, (0, 3))",
        "f(Q, (3,))",
        "f(Q, (2.0, 3.0))",
        "f(Q, (4, 4), 'nothing')",
        "f(F[0], (4, 4))",
    )


def _conversions():
    for name in "QFHILUJ":
        for kind in ("uint8", "uint16", "int32", "int64", "float16", "float32"):
            # TensorFlow leaves open what floats above the range become.
            if name != "H" or kind not in ("uint16", "int32", "int64"):
                for saturate in (False, True):
                    yield f"f({name}, tf.{kind}, saturate={saturate})"


def _decodes():
    for name in read_files():
        for channels in (0, 1, 3, 4):
            # TensorFlow takes a nearly transparent alpha for these.
            if channels < 4 or name not in ("png palette of 4 bits", "png of 1 bit"):
                yield f"f(FILES[{name!r}], {channels})"


_SEEDS = ((1, 2), (-5, 2**31 - 1), (2**40 + 3, 7), (123, 456))
_ANY = ("f(Q)", "f(B)", "f(O)", "f(Z)", "f(F[0])", "f(U)")
CALLS = {
    "image.resize": tuple(_resizes()),
    "image.resize_with_pad": (
        "f(Q, 12, 12)",
        "f(Q, 9, 30)",
        "f(B, 3, 9)",
        "f(O, 5, 2)",
        "f(Q, 5, 12, 'nearest')",
        "f(Q, 5, 12, antialias=True)",
        "f(Q, 0, 3)",
    ),
    "image.resize_with_crop_or_pad": (
        "f(Q, 20, 9)",
        "f(Q, 14, 18)",
        "f(Q, 12, 16)",
        "f(B, 4, 10)",
        "f(O, 5, 2)",
        "f(Z, 2, 9)",
        "f(Q, 0, 3)",
    ),
    "image.central_crop": (
        "f(Q, 0.5)",
        "f(Q, 0.33)",
        "f(B, 0.7)",
        "f(O, 0.1)",
        "f(Q, 1.0)",
        "f(Q, 0.0)",
        "f(Q, 1.5)",
    ),
    "image.crop_to_bounding_box": (
        "f(Q, 1, 2, 3, 4)",
        "f(B, 1, 2, 3, 2)",
        "f(Z, 1, 1, 2, 2)",
        "f(Q, -1, 2, 3, 4)",
        "f(Q, 1, 2, 13, 4)",
        "f(Q, 1, 2, 0, 4)",
    ),
    "image.pad_to_bounding_box": (
        "f(Q, 1, 2, 15, 20)",
        "f(B, 1, 2, 9, 8)",
        "f(Z, 1, 1, 9, 9)",
        "f(Q, -1, 2, 20, 30)",
        "f(Q, 1, 2, 13, 30)",
    ),
    "image.flip_left_right": _ANY,
    "image.flip_up_down": _ANY,
    "image.rot90": (*_ANY, *(f"f(Q, {k})" for k in (-1, 0, 2, 3, 5))),
    "image.convert_image_dtype": tuple(_conversions()),
    "image.rgb_to_grayscale": tuple(f"f({x})" for x in "QFBIUOZ"),
    "image.grayscale_to_rgb": ("f(tf.constant(G))", "f(tf.constant(Q))"),
    "image.per_image_standardization": tuple(f"f({x})" for x in "QFBHIUOZE"),
    "image.adjust_brightness": tuple(
        f"f({x}, {by})" for x in "QFBHIUOZE" for by in (0.1, -0.3)
    ),
    "image.adjust_contrast": tuple(
        f"f({x}, {by})" for x in "QFBIUOZEG" for by in (0.5, 2.0)
    ),
    "image.adjust_saturation": tuple(
        f"f({x}, {by})" for x in "QFBUOZEG" for by in (0.5, 2.0, 0.0)
    ),
    "image.adjust_hue": tuple(
        f"f({x}, {by})" for x in "QFBUOZEG" for by in (0.1, -0.3, 1, 2)
    ),
    **{
        f"image.stateless_random_{name}": tuple(
            f"f({x}, {ends}, seed={seed})" for x in "QF" for seed in _SEEDS
        )
        for name, ends in (
            ("brightness", 0.3),
            ("contrast", "0.2, 1.8"),
            ("saturation", "0.2, 1.8"),
            ("hue", 0.3),
        )
    },
    **{
        f"image.stateless_random_flip_{name}": tuple(
            f"f({x}, seed={seed})" for x in "QB" for seed in _SEEDS
        )
        for name in ("left_right", "up_down")
    },
    "image.stateless_random_crop": (
        *(f"f(Q, (5, 6, 3), seed={seed})" for seed in _SEEDS),
        *(f"f(B, (2, 3, 2, 3), seed={seed})" for seed in _SEEDS),
        "f(Q, (13, 17, 3), seed=(1, 2))",
        "f(Q, (50, 6, 3), seed=(1, 2))",
        "f(Q, (5, 6, 3), seed=1)",
    ),
    "image.non_max_suppression": (
        "f(X, S, 10)",
        "f(X, S, 100, 0.2)",
        "f(X, S, 100, 0.0, 0.3)",
        "f(X, S, 100, 1.0)",
        "f(X[:, [2, 3, 0, 1]], S, 100, 0.3)",
        "f(X, S, 0)",
        "f(X[:0], S[:0], 5)",
        "f(X, S[:3], 5)",
        "f(X, S, 100, 2.0)",
    ),
    "io.decode_image": (
        *_decodes(),
        *(
            f"f(FILES[{name!r}], dtype=tf.{kind})"
            for name in ("jpeg 4:2:0", "png with 3 × 16 bits", "gif of 3 frames")
            for kind in ("uint16", "float32", "float16", "int32")
        ),
        "f(FILES['gif of 3 frames'], expand_animations=False)",
    ),
    "io.decode_jpeg": (
        *(
            f"f(FILES[{name!r}], {more})"
            for name in ("jpeg 4:2:0", "jpeg grey", "jpeg 4:2:2")
            for more in (
                "ratio=2",
                "ratio=4",
                "ratio=8",
                "ratio=3",
                "dct_method='INTEGER_ACCURATE'",
                "dct_method='no'",
                "fancy_upscaling=False",
            )
        ),
        "f(FILES['png with 3 × 8 bits'])",
        "f(FILES['gif of 3 frames'])",
        "f(FILES['bmp with 24 bits'])",
    ),
    "io.decode_png": (
        *(
            f"f(FILES[{name!r}], {channels}, tf.uint16)"
            for name in read_files()
            if name.startswith("png")
            for channels in (0, 1, 3)
        ),
        "f(FILES['jpeg grey'])",
    ),
    "io.decode_gif": ("f(FILES['gif of 3 frames'])", "f(FILES['jpeg grey'])"),
    "io.decode_bmp": ("f(FILES['bmp with 24 bits'])", "f(FILES['jpeg grey'])"),
}
