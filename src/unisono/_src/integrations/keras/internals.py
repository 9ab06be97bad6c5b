"""What the integration needs of Keras' private members, all in this module.

Keras has no public way to any of it. Keras 3.15, with which the tests run, has these
members. Where another version lacks one that is read, its function raises
`AttributeError`. One that is only set (`set_first_epoch`, `set_first_value`,
`give_weights_back`, `set_loop_state`) would have no effect; the tests of backups,
checkpoints and interrupted loops find that.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp

# What objects consist of. The public lists contain what the children have, too.


def own_variables(layer: Any) -> list[Any]:
    """Return the variables of a layer without those of its layers."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def own_seeds(layer: Any) -> list[Any]:
    """Return the variables of a layer's random generators."""
    return [generator.state for generator in layer._seed_generators]


def own_layers(layer: Any) -> list[Any]:
    """Return the layers of a layer without those of its layers."""
    return list(layer._layers)


def own_state(obj: Any) -> list[Any]:
    """Return the variables of an optimizer or metric without those of its parts."""
    return list(obj._variables)


def all_layers(layer: Any) -> Iterator[Any]:
    """Return a layer and its layers at every depth."""
    found: Iterator[Any] = layer._flatten_layers()
    return found


def optimized_variables(optimizer: Any) -> list[Any]:
    """Return the variables that an optimizer was built for, in its order."""
    return list(optimizer._trainable_variables)


def declared_inputs(model: Any) -> Any:
    """Return the inputs of a functional model, in the structure that it takes."""
    return model._inputs_struct


def unlisted_metrics(model: Any) -> list[Any]:
    """Return the metrics given to `compile` that `model.metrics` does not list yet.

    Keras lists them after the first batch.
    """
    compiled = model._compile_metrics
    if compiled is None or compiled.built:
        return []
    return [compiled._user_metrics, compiled._user_weighted_metrics]


# Variables. The public `dtype` and `value` depend on the scopes for autocasting and for
# stateless calls that are open.


def stored_type(variable: Any) -> Any:
    """Return the type of the value that a variable stores."""
    return jnp.dtype(variable._dtype)


def stored_value(variable: Any) -> Any:
    """Return the value that a variable stores; None if it has none."""
    return variable._value


def store(variable: Any, value: Any) -> None:
    """Replace the value that a variable stores."""
    variable._direct_assign(value)


def set_first_value(variable: Any, value: Any) -> None:
    """Say which value a variable gets that has none yet."""
    # Keras calls the initializer when it leaves a stateless scope.
    variable._initializer = lambda shape, dtype=None: jnp.asarray(value)


@contextlib.contextmanager
def pretend_shapes(changed: Sequence[Any], values: Sequence[Any]) -> Iterator[None]:
    """Run a block in which variables report the shapes of `values`."""
    before = [v._shape for v in changed]
    try:
        for variable, value in zip(changed, values, strict=False):
            variable._shape = value.shape
        yield
    finally:
        for variable, shape in zip(changed, before, strict=True):
            variable._shape = shape


# Loops.


def build(model: Any, batch: Any) -> None:
    """Build a model, its optimizer and its metrics for batches like one."""
    model._symbolic_build(data_batch=batch)


def loss_tracker(model: Any) -> Any:
    """Return the metric that has the mean loss of a model."""
    return model._loss_tracker


def model_of(callbacks: Any) -> Any:
    """Return the model of a list of callbacks, while a step has its state."""
    # The public `model` would store the state of the step in the variables.
    return callbacks._model


def first_epoch(model: Any) -> int | None:
    """Return the number that `set_first_epoch` has set; None if it has not."""
    found: int | None = model._initial_epoch
    return found


def set_first_epoch(model: Any, epoch: int | None) -> None:
    """Say with which epoch `fit` begins; None for the one that it was given."""
    # Keras' own callback for backups sets it, too.
    model._initial_epoch = epoch


def has_weights(model: Any) -> bool:
    """Return whether a model's variables have its weights, and no running loop."""
    return bool(model._jax_state_synced)


def give_weights_back(model: Any) -> None:
    """Let Keras take the values of a model's variables for its weights."""
    model._jax_state_synced = True


def loop_state(model: Any) -> Any:
    """Return the state of the latest execution of a loop; None if there is none."""
    return model._jax_state


def set_loop_state(model: Any, state: dict[str, Any] | None) -> None:
    """Replace the state that Keras will store in the variables."""
    model._jax_state = state


def steps_taken(epochs: Any) -> int:
    """Return how many steps an `EpochIterator` has taken in this pass."""
    return int(epochs._steps_seen)


def is_in_pass(epochs: Any) -> bool:
    """Return whether an `EpochIterator` goes on with a pass in the next epoch."""
    return epochs._current_iterator is not None


def resume_pass(epochs: Any, steps: int) -> None:
    """Let an `EpochIterator` go on with a pass in which it has taken some steps."""
    epochs._current_iterator = iter(epochs._get_iterator())
    epochs._steps_seen = steps
