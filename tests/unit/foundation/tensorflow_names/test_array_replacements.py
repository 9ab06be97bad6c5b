"""What the remedies say to write gives the numbers recorded from TensorFlow."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import jax.scipy.fft
import numpy
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

import unisono
from unisono._src.foundation.tensorflow_names import missing
from unisono.keras import ops as ops  # Loading Keras sets variables of the environment.

_X = numpy.arange(1, 9, dtype="float32") / 4
_MATRIX = jnp.array([[4.0, 1, 0], [1, 3, 2], [9, 2, 5]])
_SQUARE = _MATRIX @ _MATRIX.T
_IMAGES = jnp.arange(12.0).reshape(1, 2, 2, 3) / 12
_WAVE = numpy.sin(numpy.arange(16, dtype="float32"))
_GAMMALN = jax.scipy.special.gammaln

# path, what the remedy says to write, its variables, and TensorFlow 2.21's numbers
_CASES = [
    ("math.bessel_i0", "jax.scipy.special.i0(x)", {}, [1.01569, 1.06348, 1.14565]),
    ("math.igamma", "jax.scipy.special.gammainc(a, x)", {"a": _X[:3], "x": _X[1:4]},
     [0.84649, 0.77933, 0.73998]),
    ("math.igammac", "jax.scipy.special.gammaincc(a, x)", {"a": _X[:3], "x": _X[1:4]},
     [0.15351, 0.22067, 0.26002]),
    ("math.erfcinv", "jax.scipy.special.erfinv(1 - x)",
     {"x": numpy.array([0.25, 0.5, 1.5], "float32")}, [0.81342, 0.47694, -0.47694]),
    ("math.lbeta", "g(x).sum(-1) - g(x.sum(-1))", {"g": _GAMMALN}, 2.18445),
    ("math.special.expint", "jax.scipy.special.expi(x)", {},
     [-0.54254, 0.45422, 1.20733]),
    ("math.special.fresnel_cos", "scipy.special.fresnel(x)[1]", {},
     [0.24976, 0.49234, 0.69353]),
    ("math.special.dawsn", "scipy.special.dawsn", {}, [0.23984, 0.42444, 0.52301]),
    ("math.special.bessel_j1", "scipy.special.j1", {}, [0.12403, 0.24227, 0.34924]),
    ("math.sobol_sample",
     "scipy.stats.qmc.Sobol(dim, scramble=False).random(n + 1)[1:]",
     {"dim": 2, "n": 3}, [[0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]),
    ("image.transpose", "jax.numpy.swapaxes(images, -3, -2)",
     {"images": _IMAGES[0, :, :, :1]}, [[[0], [1 / 2]], [[1 / 4], [3 / 4]]]),
    ("nn.normalize_moments", "squares / n - mean**2",
     {"squares": 20.0, "n": 3, "mean": 2.0}, 2.66667),
    ("signal.dct", "jax.scipy.fft.dct(x)", {"x": _X[:4]},
     [5.0, -1.57716, 0.0, -0.11209]),
    ("signal.idct", "jax.scipy.fft.idct(x) * 2 * x.shape[-1]", {"x": _X[:4]},
     [2.99991, -2.27574, 0.65442, -0.37859]),
    ("signal.hann_window", "jax.numpy.hanning(n)", {"n": 5}, [0, 0.5, 1, 0.5, 0]),
    ("signal.hamming_window", "jax.numpy.hamming(n)", {"n": 5},
     [0.08, 0.54, 1, 0.54, 0.08]),
    ("signal.kaiser_window", "jax.numpy.kaiser(n, beta)", {"n": 5, "beta": 12.0},
     [0.00005, 0.21567, 1, 0.21567, 0.00005]),
    ("signal.rfft2d", "jax.numpy.fft.rfft2(x)", {"x": _X.reshape(2, 4)},
     [[9, -1, -1], [-4, 0, 0]]),
    ("linalg.eigh_tridiagonal",
     "jax.scipy.linalg.eigh_tridiagonal(alpha, beta, eigvals_only=True)",
     {"alpha": _X[:3], "beta": _X[:2]}, [-0.03628, 0.36901, 1.16727]),
    ("linalg.sqrtm", "jax.scipy.linalg.sqrtm(x)", {"x": _SQUARE},
     [[2.88369, 0.2588, 2.93553], [0.2588, 3.24528, 1.84423],
      [2.93553, 1.84423, 9.89856]]),
    ("linalg.logm", "(v * jax.numpy.log(w)) @ v.T",
     dict(zip("wv", jnp.linalg.eigh(_SQUARE), strict=True)),
     [[1.60415, -0.10816, 1.17604], [-0.10816, 2.19481, 0.67344],
      [1.17604, 0.67344, 4.28714]]),
    ("linalg.lu_solve", "jax.numpy.linalg.solve(x, rhs)",
     {"x": _MATRIX, "rhs": jnp.ones((3, 1))}, [[0.14035], [0.4386], [-0.22807]]),
    ("image.adjust_gamma", "gain * image**gamma",
     {"gain": 3, "gamma": 2, "image": _X[:2]}, [0.1875, 0.75]),
    ("nn.isotonic_regression",
     "scipy.optimize.isotonic_regression(x, increasing=False).x",
     {"x": [3.0, 1.0, 2.0]}, [3.0, 1.5, 1.5]),
    ("bitcast", "jax.lax.bitcast_convert_type(x, dtype)",
     {"x": jnp.float32(0.25), "dtype": "int32"}, 1048576000),
]  # fmt: skip


@pytest.mark.parametrize(("path", "code", "names", "found"), _CASES)
def test_a_remedy_gives_the_numbers_of_tensorflow(path, code, names, found):
    assert code in missing.advise(path)
    known = {"jax": jax, "scipy": scipy, "x": _X[:3]} | names
    value = eval(code, known)
    if callable(value):
        value = value(known["x"])
    numpy.testing.assert_allclose(numpy.real(value), found, atol=2e-5)


def test_a_remedy_of_the_fourier_transform_in_frames_gives_tensorflows():
    code = missing.advise("signal.stft").removeprefix("Use ").removesuffix(".")
    names: dict[str, Any] = {
        "unisono": unisono,
        "x": _WAVE,
        "length": 8,
        "step": 4,
        "fft_length": 8,
    }
    exec(code, names)
    found = [-0.92046, 1.40556, -1.07174, 0.10804, 0.03673]
    numpy.testing.assert_allclose(names["real"][0], found, atol=2e-5)
    found = [0, -1.2774, 0.91193, -0.08868, 0]
    numpy.testing.assert_allclose(names["imag"][0], found, atol=2e-5)


def test_a_remedy_of_lu_gives_the_permutation():
    assert "lu, _, p = jax.lax.linalg.lu(x)" in missing.advise("linalg.lu")
    lu, _, p = jax.lax.linalg.lu(_MATRIX)
    assert p.tolist() == [2, 1, 0]
    numpy.testing.assert_allclose(lu[0], [9, 2, 5])


def test_a_remedy_of_tridiagonal_systems_solves_them():
    code = re.search(r"jax\.lax\S*\(.*?\)", missing.advise("linalg.tridiagonal_solve"))
    names: dict[str, object] = {
        "jax": jax,
        "rhs": jnp.ones((3, 1)),
        "diagonal": jnp.array([4.0, 3, 5]),
    }
    names |= {"lower": jnp.array([0.0, 0, 1]), "upper": jnp.array([1.0, 1, 0])}
    assert code
    solved = eval(code[0], names)
    matrix = jnp.array([[4.0, 1, 0], [0, 3, 1], [0, 1, 5]])
    numpy.testing.assert_allclose(matrix @ solved, jnp.ones((3, 1)), atol=1e-5)
