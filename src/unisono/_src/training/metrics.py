"""Metrics: each replica keeps sums of its own, which are added up when read.

They work where Keras is not installed, which is why they are here: Keras has a twin of
each, but is an optional dependency. `Metric`, `Sum`, `Mean` and `MeanMetricWrapper` are
what a program builds its own metrics from, and what estimators count with; the
accuracies and errors are those that most training loops report. TensorFlow's other
metrics have no class here: `unisono.metrics` takes them from Keras. In `Model.compile`
a metric of this module stands for its twin (`keras_name`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from unisono._src.foundation import jax_types, library_hooks, wide_numbers
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state.variables import Variable


class Metric:
    """The base class of metrics; abstract.

    Create a metric in the scope of a strategy, call `update_state` in `Strategy.run`,
    and read `result` outside. Each replica adds to its own copy without communication,
    and reading sums the copies, so the result is correct for uneven batches. A subclass
    creates its state with `add_weight` and implements `update_state` and `result`.

    Args:
        name: the name in messages and checkpoints; by default the name of the class.
        dtype: the dtype of the state and the result.

    >>> class Positives(Metric):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.count = self.add_weight("count")
    ...
    ...     def update_state(self, values):
    ...         self.count.assign_add(jnp.sum(values > 0))
    ...
    ...     def result(self):
    ...         return self.count.value()
    >>> positives = Positives()
    >>> positives.update_state(jnp.array([1.0, -5.0]))
    >>> float(positives(jnp.array([2.0])))
    2.0
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        self.name = name or type(self).__name__.lower()
        self.dtype: DTypeLike = jax_types.usable_type(dtype)
        self._variables: list[Variable] = []
        # Keras' metric that computes the same, for `Model.compile`.
        self.keras_name: str | None = None
        self.keras_arguments: dict[str, float] = {}
        # So that Keras, if it is loaded, tells what to write when it gets this metric.
        library_hooks.introduce()

    def add_weight(self, name: str, shape: tuple[int, ...] = ()) -> Variable:
        """Creates a variable of zeros that is summed over replicas when it is read.

        Args:
            name: the last part of the variable's name.
            shape: the shape of the variable.

        >>> total = Mean(name="loss").add_weight("hits", shape=(2,))
        >>> total.name, total.numpy().tolist()
        ('loss/hits:0', [0.0, 0.0])
        """
        made = Variable(
            jnp.zeros(shape, self.dtype),
            name=f"{self.name}/{name}",
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )
        self._variables.append(made)
        return made

    @property
    def variables(self) -> list[Variable]:
        """The variables that hold the state.

        >>> [v.name for v in Mean(name="loss").variables]
        ['loss/total:0', 'loss/count:0']
        """
        return list(self._variables)

    def _checkpoint_children(self) -> dict[str, Variable]:
        """Returns the state by names that do not depend on the metric's name."""
        return {
            v.state_cell.name.removeprefix(f"{self.name}/"): v for v in self._variables
        }

    def reset_state(self) -> None:
        """Sets the state to zero.

        >>> m = Sum()
        >>> m.update_state(3.0)
        >>> m.reset_state()
        >>> float(m.result())
        0.0
        """
        for v in self._variables:
            v.assign(jnp.zeros(v.shape, v.dtype), read_value=False)

    def reset_states(self) -> None:
        """Calls `reset_state`; the old name of that method.

        >>> m = Sum()
        >>> m.update_state(3.0)
        >>> m.reset_states()
        >>> float(m.result())
        0.0
        """
        self.reset_state()

    @abc.abstractmethod
    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Adds to the state; a subclass defines the arguments.

        Raises:
            NotImplementedError: the subclass does not implement it.

        >>> m = Sum()
        >>> m.update_state([1.0, 2.0])
        >>> m.update_state(4.0)
        >>> float(m.result())
        7.0
        """
        raise NotImplementedError

    @abc.abstractmethod
    def result(self) -> jax.Array:
        """Returns the value so far; outside `Strategy.run`, over all replicas.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     total = Sum()
        >>> strategy.run(total.update_state, args=(2.0,))
        >>> float(total.result())
        4.0
        """
        raise NotImplementedError

    def __call__(self, *args: object, **kwargs: object) -> jax.Array:
        """Adds to the state, then returns `result` as seen in the current context.

        >>> m = Mean()
        >>> float(m([1.0, 3.0])), float(m(5.0))
        (2.0, 3.0)
        """
        self.update_state(*args, **kwargs)
        return self.result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def _weights(given: object, like: jax.Array) -> jax.Array:
    """Returns the weights of examples as one weight for each element of `like`."""
    weight = jnp.asarray(given, like.dtype)
    if weight.ndim > like.ndim:
        raise ValueError(
            f"sample_weight of shape {weight.shape} has more axes than the values of "
            f"shape {like.shape}; give one weight per example."
        )
    weight = weight.reshape(weight.shape + (1,) * (like.ndim - weight.ndim))
    return jnp.broadcast_to(weight, like.shape)


class Sum(Metric):
    """Computes the sum of all values.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = Sum()
    >>> m.update_state([1.0, 2.0])
    >>> float(m.result())
    3.0
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        super().__init__(name, dtype)
        self.total = self.add_weight("total")

    def update_state(self, values: object, sample_weight: object = None) -> None:
        """Adds values, multiplied by their weights.

        Args:
            values: a number or an array.
            sample_weight: a weight for each example, or for each value; None means
                equal weights.

        Raises:
            ValueError: the weights have more axes than the values.

        >>> m = Sum()
        >>> m.update_state([1.0, 2.0], sample_weight=[3.0, 0.0])
        >>> float(m.result())
        3.0
        """
        values = jnp.asarray(values, self.dtype)
        if sample_weight is not None:
            values = values * _weights(sample_weight, values)
        self.total.assign_add(jnp.sum(values), read_value=False)

    def result(self) -> jax.Array:
        """Returns the sum so far; 0 before the first value.

        >>> float(Sum().result())
        0.0
        """
        return self.total.value()


class _MeanState(Metric, abc.ABC):
    """Keeps a weighted sum of values, and the sum of their weights; abstract."""

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        super().__init__(name, dtype)
        self.total = self.add_weight("total")
        self.count = self.add_weight("count")

    def _add(self, values: object, sample_weight: object) -> None:
        """Adds values to the `total`, and their number or weight to the `count`."""
        found = jnp.asarray(values, self.dtype)
        count = jnp.asarray(found.size, self.dtype)
        if sample_weight is not None:
            weight = _weights(sample_weight, found)
            found, count = found * weight, jnp.sum(weight)
        self.total.assign_add(jnp.sum(found), read_value=False)
        self.count.assign_add(count, read_value=False)

    def _mean(self) -> jax.Array:
        """Returns the mean so far; 0 before the first value."""
        total, count = self.total.value(), self.count.value()
        empty = count == 0
        # The inner `where` keeps the division, and its gradient, free of 0 / 0.
        return jnp.where(empty, 0.0, total / jnp.where(empty, 1.0, count))


class Mean(_MeanState):
    """Computes the weighted mean of all values.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = Mean()
    >>> m.update_state([1.0, 2.0, 6.0], sample_weight=[1, 1, 0])
    >>> float(m.result())
    1.5
    """

    def update_state(self, values: object, sample_weight: object = None) -> None:
        """Adds values with their weights.

        Args:
            values: a number or an array.
            sample_weight: a weight for each example, or for each value; None means
                equal weights.

        Raises:
            ValueError: the weights have more axes than the values.

        >>> m = Mean()
        >>> m.update_state([1.0, 5.0], sample_weight=[3.0, 1.0])
        >>> float(m.result())
        2.0
        """
        self._add(values, sample_weight)

    def result(self) -> jax.Array:
        """Returns the mean so far; 0 before the first value.

        >>> float(Mean().result())
        0.0
        """
        return self._mean()


class MeanMetricWrapper(_MeanState):
    """Computes the mean of ``fn(y_true, y_pred)`` over all examples.

    Args:
        fn: returns one value per example.
        name: the name in messages and checkpoints; by default that of the function.
        dtype: the dtype of the state and the result.

    >>> m = MeanMetricWrapper(lambda y_true, y_pred: y_pred - y_true, name="excess")
    >>> m.update_state([1.0, 2.0], [2.0, 4.0])
    >>> float(m.result())
    1.5
    """

    def __init__(
        self,
        fn: Callable[[Any, Any], Any],
        name: str | None = None,
        dtype: DTypeLike = jnp.float32,
    ) -> None:
        super().__init__(name or getattr(fn, "__name__", None), dtype)
        self._fn = fn

    def update_state(
        self, y_true: object, y_pred: object, sample_weight: object = None
    ) -> None:
        """Adds a batch of examples.

        Args:
            y_true: the labels.
            y_pred: the predictions.
            sample_weight: a weight for each example; None means equal weights.

        Raises:
            ValueError: the weights have more axes than the values of the function.

        >>> m = mean_absolute_error()
        >>> m.update_state([1.0, 2.0], [2.0, 4.0], sample_weight=[1.0, 0.0])
        >>> float(m.result())
        1.0
        """
        values = self._fn(wide_numbers.as_jax(y_true), wide_numbers.as_jax(y_pred))
        self._add(values, sample_weight)

    def result(self) -> jax.Array:
        """Returns the mean so far; 0 before the first example.

        >>> float(mean_squared_error().result())
        0.0
        """
        return self._mean()


def _equal(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    return y_true.reshape(y_pred.shape) == y_pred


def _binary_matches(threshold: float) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def match(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        found = (y_pred > threshold).astype(y_true.dtype)
        return jnp.mean((y_true == found).astype(jnp.float32), axis=-1)

    return match


def _categorical_matches(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    return y_true.argmax(-1) == y_pred.argmax(-1)


def _sparse_categorical_matches(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    found = y_pred.argmax(-1)
    return y_true.reshape(found.shape) == found


def _squared_error(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    return _last_mean(jnp.square(y_true - y_pred))


def _absolute_error(y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
    return _last_mean(jnp.abs(y_true - y_pred))


def _last_mean(x: jax.Array) -> jax.Array:
    return jnp.mean(x, axis=-1) if x.ndim > 1 else x


def _wrap(
    keras_name: str,
    fn: Callable[[Any, Any], Any],
    name: str | None,
    dtype: DTypeLike,
) -> MeanMetricWrapper:
    """Returns the mean of a function that Keras has a metric for."""
    metric = MeanMetricWrapper(fn, name, dtype)
    metric.keras_name = keras_name
    return metric


def accuracy(name: str | None = "accuracy", dtype: DTypeLike = jnp.float32) -> Metric:
    """Returns a metric of how often ``y_true`` equals ``y_pred``.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = accuracy()
    >>> m.update_state([1, 2, 3], [1, 2, 4])
    >>> round(float(m.result()), 3)
    0.667
    """
    return _wrap("Accuracy", _equal, name, dtype)


def binary_accuracy(
    name: str | None = "binary_accuracy",
    dtype: DTypeLike = jnp.float32,
    threshold: float = 0.5,
) -> Metric:
    """Returns a metric of how often ``y_pred > threshold`` equals ``y_true``.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.
        threshold: a prediction above it means class 1.

    >>> m = binary_accuracy(threshold=0.7)
    >>> m.update_state([[1.0], [1.0]], [[0.6], [0.8]])
    >>> float(m.result())
    0.5
    """
    metric = _wrap("BinaryAccuracy", _binary_matches(threshold), name, dtype)
    metric.keras_arguments = {"threshold": threshold}
    return metric


def categorical_accuracy(
    name: str | None = "categorical_accuracy", dtype: DTypeLike = jnp.float32
) -> Metric:
    """Returns a metric of how often the largest prediction is the one-hot label.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = categorical_accuracy()
    >>> m.update_state([[0, 1], [1, 0]], [[0.2, 0.8], [0.4, 0.6]])
    >>> float(m.result())
    0.5
    """
    return _wrap("CategoricalAccuracy", _categorical_matches, name, dtype)


def sparse_categorical_accuracy(
    name: str | None = "sparse_categorical_accuracy", dtype: DTypeLike = jnp.float32
) -> Metric:
    """Returns a metric of how often the largest prediction is the integer label.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = sparse_categorical_accuracy()
    >>> m.update_state([1, 0], [[0.2, 0.8], [0.4, 0.6]])
    >>> float(m.result())
    0.5
    """
    return _wrap("SparseCategoricalAccuracy", _sparse_categorical_matches, name, dtype)


def mean_squared_error(
    name: str | None = "mean_squared_error", dtype: DTypeLike = jnp.float32
) -> Metric:
    """Returns a metric that computes the mean of squared differences.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = mean_squared_error()
    >>> m.update_state([0.0, 0.0], [1.0, 3.0])
    >>> float(m.result())
    5.0
    """
    return _wrap("MeanSquaredError", _squared_error, name, dtype)


def mean_absolute_error(
    name: str | None = "mean_absolute_error", dtype: DTypeLike = jnp.float32
) -> Metric:
    """Returns a metric that computes the mean of absolute differences.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = mean_absolute_error()
    >>> m.update_state([0.0, 0.0], [1.0, -3.0])
    >>> float(m.result())
    2.0
    """
    return _wrap("MeanAbsoluteError", _absolute_error, name, dtype)


class RootMeanSquaredError(_MeanState):
    """Computes the root of the mean of squared differences.

    Args:
        name: the name in messages and checkpoints.
        dtype: the dtype of the state and the result.

    >>> m = RootMeanSquaredError()
    >>> m.update_state([0.0, 0.0], [3.0, 4.0])
    >>> round(float(m.result()), 3)
    3.536
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        super().__init__(name or "root_mean_squared_error", dtype)
        self.keras_name = "RootMeanSquaredError"

    def update_state(
        self, y_true: object, y_pred: object, sample_weight: object = None
    ) -> None:
        """Adds a batch of examples.

        Args:
            y_true: the labels.
            y_pred: the predictions.
            sample_weight: a weight for each example, or for each value; None means
                equal weights.

        Raises:
            ValueError: the weights have more axes than the differences.

        >>> m = RootMeanSquaredError()
        >>> m.update_state([0.0, 0.0], [3.0, 4.0], sample_weight=[0.0, 1.0])
        >>> float(m.result())
        4.0
        """
        squared = jnp.square(wide_numbers.as_jax(y_true) - wide_numbers.as_jax(y_pred))
        self._add(squared, sample_weight)

    def result(self) -> jax.Array:
        """Returns the root mean square so far; 0 before the first example.

        >>> float(RootMeanSquaredError().result())
        0.0
        """
        return jnp.sqrt(self._mean())
