"""TensorFlow's everyday names on the symbolic tensors of Keras.

``unisono.reduce_mean(x, axis=1)`` of a `keras.Input` becomes an operation of the model,
as in ``tf.keras``. The public names are replaced when Keras is loaded by
`unisono.keras`, so that a program without Keras pays nothing.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, final

import jax.numpy as jnp
import keras
import numpy as np

from unisono._src.foundation import public_names
from unisono._src.foundation.tensorflow_names import everyday
from unisono._src.integrations.keras import internals

KerasTensor: type = keras.KerasTensor
_LISTS = (list, tuple)
# The public modules that have functions of arrays.
_MODULES = ("unisono", "unisono.linalg", "unisono.math", "unisono.nn")
_SIZES = ("rank", "shape", "shape_n", "size")

# Random numbers of a given shape.
_DRAWS = (
    *("normal", "truncated_normal", "uniform"),
    *("stateless_normal", "stateless_truncated_normal", "stateless_uniform"),
)
# TensorFlow's path -> the function for arrays.
_functions: dict[str, Callable[..., object]] = {}


@keras.saving.register_keras_serializable("unisono")
@final
class NamedFunction(keras.Operation):
    """An operation of a Keras model that calls a function by its name in TensorFlow.

    Args:
        function: the path of the function without ``tf.``, such as ``"nn.relu"``.
        name: the name of the operation; made from that of the function by default.
    """

    def __init__(self, function: str, name: str | None = None) -> None:
        if name is None:
            name = internals.auto_name(function.replace(".", "_"))
        super().__init__(name=name)
        self.function = function

    def call(self, *args: object, **kwargs: object) -> object:
        """Returns what the function gives for arrays."""
        return _functions[self.function](*args, **kwargs)

    def compute_output_spec(self, *args: object, **kwargs: object) -> object:
        """Returns the symbolic tensors that stand for the results."""
        given = keras.tree.flatten((args, kwargs))
        # Dense ones: Keras takes the product of a tensor and an array for sparse.
        symbolic = [KerasTensor(x.shape, x.dtype) for x in given if _is_symbolic(x)]

        # All else, such as axes, must stay the numbers that they are.
        def fill(*arrays: object) -> object:
            left = iter(arrays)
            args_now, kwargs_now = keras.tree.map_structure(
                lambda x: next(left) if _is_symbolic(x) else x, (args, kwargs)
            )
            return self.call(*args_now, **kwargs_now)

        return internals.compute_output_spec(fill, *symbolic)


def _is_symbolic(x: object) -> bool:
    return type(x) is KerasTensor


def _has_symbolic(values: Iterable[Any]) -> bool:
    """Returns whether there is a symbolic tensor in nested lists."""
    # Exact types: this runs for every call with arrays, too.
    for x in values:
        kind = type(x)
        if kind is KerasTensor or (kind in _LISTS and _has_symbolic(x)):
            return True
    return False


def _name_type(x: object) -> object:
    """Returns an element type as its name, which Keras can save."""
    if isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic)):
        return np.dtype(x).name
    return x


def _wrap(path: str, function: Callable[..., object]) -> Callable[..., object]:
    """Returns a function that takes symbolic tensors, too."""

    @functools.wraps(function)
    def routed(*args: object, **kwargs: object) -> object:
        if not (_has_symbolic(args) or (kwargs and _has_symbolic(kwargs.values()))):
            return function(*args, **kwargs)
        if path in _SIZES:
            raise ValueError(
                f"The result of unisono.{path} is not known for a symbolic tensor of "
                "Keras. Write x.shape, in which the size of a batch is None, or "
                "keras.ops.shape(x); or compute it in the `call` of a layer."
            )
        named = {key: _name_type(x) for key, x in kwargs.items()}
        return NamedFunction(path)(*map(_name_type, args), **named)

    if function in public_names.homes:
        public_names.homes[routed] = public_names.homes[function]
    return routed


def _wrap_draw(function: Callable[..., object]) -> Callable[..., object]:
    """Returns a function of random numbers for which Keras finds shapes, too.

    A layer may draw as many as there are examples, whose number Keras does not know
    while it builds a model. Only the shape of the result counts then.
    """
    parameters = inspect.signature(function)

    @functools.wraps(function)
    def draw(*args: Any, **kwargs: Any) -> object:
        if not internals.in_symbolic_scope():
            return function(*args, **kwargs)
        given = parameters.bind(*args, **kwargs)
        given.apply_defaults()
        sizes = np.asarray(given.arguments["shape"], object).tolist()
        return jnp.zeros(tuple(sizes), given.arguments["dtype"])

    if function in public_names.homes:
        public_names.homes[draw] = public_names.homes[function]
    return draw


@functools.cache
def install() -> None:
    """Lets the public names of functions of arrays take symbolic tensors."""
    draws = importlib.import_module("unisono.random")
    for name in _DRAWS:
        setattr(draws, name, _wrap_draw(getattr(draws, name)))
    made: dict[Callable[..., object], Callable[..., object]] = {}
    modules = [importlib.import_module(name) for name in _MODULES]
    for module in modules:
        dir(module)  # It loads the functions, some of them for another module, too.
    for module in modules:
        for name, entry in everyday.names_in(module.__name__).items():
            function = entry.value
            if not entry.is_of_arrays or not callable(function):
                continue
            _functions[f"{module.__name__}.{name}".partition(".")[2]] = function
            if function not in made:
                made[function] = _wrap(entry.path, function)
            setattr(module, name, made[function])
