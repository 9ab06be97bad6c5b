"""Metrics: sums kept per replica and added up when read."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.foundation.public_names import publish
from unisono._src.state.variables import Variable


class Metric:
    """State that steps add to and that is read now and then; abstract.

    Make it in the scope of a strategy, call `update_state` in `Strategy.run`, and
    read `result` outside: each replica adds to its own copy without communication,
    and reading adds the copies up, so uneven batches count right.

    Args:
        name: for messages and checkpoints.
        dtype: of the state and the result.
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        self.name = name or type(self).__name__.lower()
        self.dtype = dtype
        self._variables: list[Variable] = []

    def add_weight(self, name: str, shape: tuple[int, ...] = ()) -> Variable:
        """A variable that is summed over replicas when it is read."""
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
        """The state."""
        return list(self._variables)

    def _checkpoint_children(self) -> dict[str, Any]:
        return {v._cell.name.removeprefix(f"{self.name}/"): v for v in self._variables}

    def reset_state(self) -> None:
        """Set the state to zero."""
        for v in self._variables:
            v.assign(jnp.zeros(v.shape, v.dtype), read_value=False)

    def reset_states(self) -> None:
        """The old name of `reset_state`."""
        self.reset_state()

    @abc.abstractmethod
    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Add to the state."""
        raise NotImplementedError

    @abc.abstractmethod
    def result(self) -> jax.Array:
        """The value so far, over all replicas."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> jax.Array:
        """Add to the state, then give the value as the running context sees it."""
        self.update_state(*args, **kwargs)
        return self.result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def _ratio(total: Any, count: Any) -> jax.Array:
    total, count = jnp.asarray(total), jnp.asarray(count)
    empty = count == 0
    return jnp.where(empty, 0.0, total / jnp.where(empty, 1.0, count))


def _weights(weight: Any, like: jax.Array) -> jax.Array:
    weight = jnp.asarray(weight, like.dtype)
    if weight.ndim > like.ndim:
        raise ValueError(
            f"sample_weight of shape {weight.shape} has more axes than the values of "
            f"shape {like.shape}; give one weight per example."
        )
    weight = weight.reshape(weight.shape + (1,) * (like.ndim - weight.ndim))
    return jnp.broadcast_to(weight, like.shape)


class Sum(Metric):
    """The sum of all values.

    >>> m = Sum()
    >>> m.update_state([1.0, 2.0])
    >>> float(m.result())
    3.0
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        super().__init__(name, dtype)
        self.total = self.add_weight("total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values, times their weights."""
        values = jnp.asarray(values, self.dtype)
        if sample_weight is not None:
            values = values * _weights(sample_weight, values)
        self.total.assign_add(jnp.sum(values), read_value=False)

    def result(self) -> jax.Array:
        """The sum so far."""
        return self.total.value()


class Mean(Metric):
    """The weighted mean of all values.

    >>> m = Mean()
    >>> m.update_state([1.0, 2.0, 6.0], sample_weight=[1, 1, 0])
    >>> float(m.result())
    1.5
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        super().__init__(name, dtype)
        self.total = self.add_weight("total")
        self.count = self.add_weight("count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values with their weights."""
        _add_mean(self, jnp.asarray(values, self.dtype), sample_weight)

    def result(self) -> jax.Array:
        """The mean so far; 0 before the first value."""
        return _ratio(self.total.value(), self.count.value())


def _add_mean(metric: Any, values: jax.Array, sample_weight: Any) -> None:
    count: Any = jnp.asarray(values.size, metric.dtype)
    if sample_weight is not None:
        weight = _weights(sample_weight, values)
        values, count = values * weight, jnp.sum(weight)
    metric.total.assign_add(jnp.sum(values), read_value=False)
    metric.count.assign_add(count, read_value=False)


class MeanMetricWrapper(Metric):
    """The mean of ``fn(y_true, y_pred)`` over all examples.

    Args:
        fn: gives one value per example.
        name: for messages and checkpoints.
        dtype: of the state and the result.
    """

    def __init__(
        self,
        fn: Callable[[Any, Any], Any],
        name: str | None = None,
        dtype: DTypeLike = jnp.float32,
    ) -> None:
        super().__init__(name or getattr(fn, "__name__", None), dtype)
        self._fn = fn
        self.total = self.add_weight("total")
        self.count = self.add_weight("count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of examples."""
        values = self._fn(jnp.asarray(y_true), jnp.asarray(y_pred))
        _add_mean(self, jnp.asarray(values, self.dtype), sample_weight)

    def result(self) -> jax.Array:
        """The mean so far; 0 before the first example."""
        return _ratio(self.total.value(), self.count.value())


def _equal(y_true: Any, y_pred: Any) -> Any:
    return y_true.reshape(y_pred.shape) == y_pred


def _binary(threshold: float) -> Callable[[Any, Any], Any]:
    def match(y_true: Any, y_pred: Any) -> Any:
        found = (y_pred > threshold).astype(y_true.dtype)
        return jnp.mean((y_true == found).astype(jnp.float32), axis=-1)

    return match


def _categorical(y_true: Any, y_pred: Any) -> Any:
    return y_true.argmax(-1) == y_pred.argmax(-1)


def _sparse_categorical(y_true: Any, y_pred: Any) -> Any:
    found = y_pred.argmax(-1)
    return y_true.reshape(found.shape) == found


def _squared(y_true: Any, y_pred: Any) -> Any:
    return _last_mean(jnp.square(y_true - y_pred))


def _absolute(y_true: Any, y_pred: Any) -> Any:
    return _last_mean(jnp.abs(y_true - y_pred))


def _last_mean(x: jax.Array) -> jax.Array:
    return jnp.mean(x, axis=-1) if x.ndim > 1 else x


def accuracy(name: str | None = "accuracy", dtype: DTypeLike = jnp.float32) -> Metric:
    """How often ``y_true`` equals ``y_pred``.

    >>> m = accuracy()
    >>> m.update_state([1, 2, 3], [1, 2, 4])
    >>> round(float(m.result()), 3)
    0.667
    """
    return MeanMetricWrapper(_equal, name, dtype)


def binary_accuracy(
    name: str | None = "binary_accuracy",
    dtype: DTypeLike = jnp.float32,
    threshold: float = 0.5,
) -> Metric:
    """How often ``y_pred > threshold`` equals ``y_true``."""
    return MeanMetricWrapper(_binary(threshold), name, dtype)


def categorical_accuracy(
    name: str | None = "categorical_accuracy", dtype: DTypeLike = jnp.float32
) -> Metric:
    """How often the largest prediction is the one-hot label."""
    return MeanMetricWrapper(_categorical, name, dtype)


def sparse_categorical_accuracy(
    name: str | None = "sparse_categorical_accuracy", dtype: DTypeLike = jnp.float32
) -> Metric:
    """How often the largest prediction is the integer label."""
    return MeanMetricWrapper(_sparse_categorical, name, dtype)


def mean_squared_error(
    name: str | None = "mean_squared_error", dtype: DTypeLike = jnp.float32
) -> Metric:
    """The mean of squared differences."""
    return MeanMetricWrapper(_squared, name, dtype)


def mean_absolute_error(
    name: str | None = "mean_absolute_error", dtype: DTypeLike = jnp.float32
) -> Metric:
    """The mean of absolute differences."""
    return MeanMetricWrapper(_absolute, name, dtype)


class RootMeanSquaredError(Metric):
    """The root of the mean of squared differences.

    >>> m = RootMeanSquaredError()
    >>> m.update_state([0.0, 0.0], [3.0, 4.0])
    >>> round(float(m.result()), 3)
    3.536
    """

    def __init__(self, name: str | None = None, dtype: DTypeLike = jnp.float32) -> None:
        super().__init__(name or "root_mean_squared_error", dtype)
        self.total = self.add_weight("total")
        self.count = self.add_weight("count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of examples."""
        squared = jnp.square(jnp.asarray(y_true) - jnp.asarray(y_pred))
        _add_mean(self, jnp.asarray(squared, self.dtype), sample_weight)

    def result(self) -> jax.Array:
        """The root mean square so far."""
        return jnp.sqrt(_ratio(self.total.value(), self.count.value()))


publish(
    "unisono.metrics",
    Mean,
    MeanMetricWrapper,
    Metric,
    RootMeanSquaredError,
    Sum,
    Accuracy=accuracy,
    BinaryAccuracy=binary_accuracy,
    CategoricalAccuracy=categorical_accuracy,
    MeanAbsoluteError=mean_absolute_error,
    MeanSquaredError=mean_squared_error,
    SparseCategoricalAccuracy=sparse_categorical_accuracy,
)
