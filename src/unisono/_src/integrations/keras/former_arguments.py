"""Arguments of ``tf.keras`` that Keras 3 has renamed or dropped.

Each is taken for what it meant, with a warning that says what to write.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import keras

from unisono._src.integrations.keras import optimizers
from unisono._src.integrations.keras.internals import KerasOptimizer, KerasVariable

# The positional arguments of Keras 2, where Keras 3 takes the shape first.
_LAYER = ("name", "shape", "dtype", "initializer", "regularizer", "trainable")
_METRIC = ("name", "shape", "aggregation", "synchronization", "initializer", "dtype")


def wrap_optimizer_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of optimizers that takes ``lr`` for the learning rate."""

    @functools.wraps(original)
    def init(self: object, *args: object, **kwargs: object) -> None:
        # A `LossScaleOptimizer` has no rate of its own, and Keras refuses its `lr`.
        if "lr" in kwargs and not isinstance(self, keras.optimizers.LossScaleOptimizer):
            rate = kwargs.pop("lr")
            kind = type(self).__name__
            # One more call lies between: that of the `__init__` of the class.
            _warn(
                f"{kind}(lr={rate!r}) is {kind}(learning_rate={rate!r}) in Keras 3.", 4
            )
            # The class has passed its default rate on; `lr` prevailed in Keras 2, too.
            if args:
                args = (rate, *args[1:])
            else:
                kwargs["learning_rate"] = rate
        original(self, *args, **kwargs)

    return init


def wrap_add_weight(original: Callable[..., object]) -> Callable[..., object]:
    """Return an `add_weight` of layers that takes the order of Keras 2, too."""
    return _take_name_first(original, _LAYER)


def wrap_metric_weight(original: Callable[..., object]) -> Callable[..., object]:
    """Return an `add_weight` of metrics that takes the order of Keras 2, too."""
    return _take_name_first(original, _METRIC)


def _take_name_first(
    original: Callable[..., object], order: Sequence[str]
) -> Callable[..., object]:
    """Return a method that takes a name for its first argument, which is a shape."""

    @functools.wraps(original)
    def add(self: object, *args: object, **kwargs: object) -> object:
        # No shape is a string, so the order is not in doubt.
        if args and isinstance(args[0], str):
            given = _name(args, order)
            written = ", ".join(f"{name}={value!r}" for name, value in given.items())
            _warn(
                f"add_weight({args[0]!r}, …) has its arguments in the order of Keras "
                f"2. They were taken for add_weight({written})."
            )
            args, kwargs = (), {**given, **kwargs}
        return original(self, *args, **kwargs)

    return add


def _name(args: Sequence[object], order: Sequence[str]) -> Mapping[str, object]:
    if len(args) > len(order):
        raise TypeError(
            f"add_weight takes at most {len(order)} arguments without names, "
            f"({', '.join(order)}), received {len(args)}. Write their names."
        )
    return dict(zip(order, args, strict=False))


def wrap_apply_gradients(original: Callable[..., object]) -> Callable[..., object]:
    """Return an `apply_gradients` that can leave gradients as the replicas have them.

    With ``experimental_aggregate_gradients=False`` the program has summed them itself,
    usually in order to clip the sum. Every replica then applies its own, and all must
    be the same.
    """

    @functools.wraps(original)
    def apply_gradients(
        self: KerasOptimizer,
        grads_and_vars: Iterable[tuple[optimizers.Gradient | None, KerasVariable]],
        name: str | None = None,  # It named an operation of a graph.
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> object:
        if experimental_aggregate_gradients and not skip_gradients_aggregation:
            return original(self, grads_and_vars)
        gradients, variables = zip(*grads_and_vars, strict=True)
        self.apply(optimizers.OwnGradients(gradients), variables)
        return self.iterations

    return apply_gradients


def _warn(text: str, level: int = 3) -> None:
    # At the line of the program, which is below this function and the wrapper.
    warnings.warn(text, stacklevel=level)
