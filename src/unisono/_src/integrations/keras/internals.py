"""All that the integration needs of Keras' private names and members.

Keras has no public way to any of it. `NAMES` lists the private names, with the reason
for each. They load one by one, when they are first used: ``internals.JAXTrainer`` is
Keras' class. The protocols below list the members of Keras' objects that are used, the
private ones among them. Names and members are those of Keras 3.13 to 3.15.

A name that another version lacks raises `AttributeError` where it is used, and
`find_missing` lists it. A private member that is only set (`set_first_epoch`,
`set_first_value`, `give_weights_back`, `set_loop_state`) would have no effect; the
tests of this module find that.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import abc
import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

# Keras' modules, the names that are used of each, and what for. This module has all of
# these names, and the modules by the last part of their path. A function that is
# replaced in its module (`scope`, `recognition`) is called through the module.
NAMES: dict[str, tuple[str, str]] = {
    "keras.src.ops": ("cond", "replaced where optimizers call it"),
    "keras.src.backend": ("compute_output_spec", "shapes of everyday names in models"),
    "keras.src.backend.config": ("is_nnx_enabled", "such layers are refused"),
    "keras.src.backend.common.global_state": (
        "GLOBAL_STATE_TRACKER GLOBAL_SETTINGS_TRACKER "
        "get_global_attribute set_global_attribute",
        "state per thread, and the counters of layers' names",
    ),
    "keras.src.backend.common.stateless_scope": (
        "in_stateless_scope get_stateless_scope",
        "the values that Keras itself passes",
    ),
    "keras.src.backend.common.symbolic_scope": (
        "in_symbolic_scope",
        "whether Keras only asks for shapes",
    ),
    "keras.src.backend.jax.nn": ("moments", "batch statistics of all replicas"),
    "keras.src.backend.jax.trainer": (
        "JAXTrainer JAXEpochIterator jit",
        "the loops of models, and the batches and steps of an epoch",
    ),
    "keras.src.layers.preprocessing.data_layer": ("DataLayer", "types in datasets"),
    "keras.src.layers.preprocessing.discretization": ("tf", "`adapt` of datasets"),
    "keras.src.layers.preprocessing.normalization": ("tf", "`adapt` of datasets"),
    "keras.src.losses.loss": (
        "reduce_values scale_loss_for_distribution unscale_loss_for_distribution",
        "replaced where losses ask for the number of replicas",
    ),
    "keras.src.models.functional": ("Functional", "models with declared inputs"),
    "keras.src.optimizers.base_optimizer": ("BaseOptimizer", "that of all optimizers"),
    "keras.src.random.seed_generator": (
        "global_seed_generator",
        "the generator of the whole process",
    ),
    "keras.src.trainers.compile_utils": ("CompileMetrics", "a container of metrics"),
    "keras.src.trainers.data_adapters": (
        "get_data_adapter",
        "replaced where loops choose what they read from",
    ),
    "keras.src.trainers.data_adapters.array_slicing": (
        "train_validation_split",
        "`validation_split` of `fit`",
    ),
    "keras.src.trainers.data_adapters.data_adapter": (
        "DataAdapter",
        "the base of what loops read from",
    ),
    "keras.src.trainers.data_adapters.data_adapter_utils": (
        "class_weight_to_sample_weights",
        "`class_weight` of `fit`",
    ),
    "keras.src.trainers.trainer": ("Trainer", "`compile` takes our metrics"),
    "keras.src.utils.io_utils": (
        "ask_to_proceed_with_overwrite",
        "the question of `save` before it replaces a model",
    ),
    "keras.src.utils.traceback_utils": (
        "inject_argument_info_in_traceback",
        "replaced where layers are called",
    ),
    "keras.src.utils.naming": ("auto_name to_snake_case", "names of layers"),
}


def __getattr__(name: str) -> Any:
    """Return one of `NAMES`, and keep it for the next time."""
    for path, (names, why) in NAMES.items():
        is_module = path.rpartition(".")[2] == name
        if not is_module and name not in names.split():
            continue
        try:
            found = importlib.import_module(path)
            found = globals()[name] = found if is_module else getattr(found, name)
        except (ImportError, AttributeError) as error:
            where = path if is_module else f"{path}.{name}"
            raise AttributeError(
                f"Keras {sys.modules['keras'].__version__} has no {where}, which "
                f"unisono needs: {why}. Install a version of Keras that it was tested "
                "with (3.13 to 3.15)."
            ) from error
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find_missing() -> list[str]:
    """Return the paths of `NAMES` that the installed Keras does not have."""
    missing = []
    for path, (names, _) in NAMES.items():
        for name in names.split():
            try:
                getattr(importlib.import_module(path), name)
            except (ImportError, AttributeError):
                missing.append(f"{path}.{name}")
    return missing


# What objects of Keras have, as far as it is used here.


class KerasVariable(Protocol):
    """A variable of Keras."""

    name: str
    path: str
    dtype: str
    trainable: bool
    aggregation: str
    synchronization: str
    _value: jax.Array | None
    _shape: tuple[int, ...]
    _dtype: str
    _initializer: Callable[..., jax.Array] | None

    @property
    def value(self) -> jax.Array:
        """The value as the running context sees it."""

    def assign(self, value: jax.typing.ArrayLike) -> object:
        """Replace the value."""

    def _direct_assign(self, value: jax.Array) -> None: ...

    def _maybe_autocast(self, value: jax.Array) -> jax.Array: ...

    def _convert_to_tensor(self, value: object, dtype: str) -> jax.Array: ...


class KerasSeedGenerator(Protocol):
    """A random generator of Keras."""

    state: KerasVariable


class KerasMetric(Protocol):
    """A metric."""

    name: str
    variables: list[KerasVariable]
    _variables: list[KerasVariable]

    def update_state(self, *args: object, **kwargs: object) -> object:
        """Add examples."""

    def reset_state(self) -> None:
        """Forget all examples."""


class KerasOptimizer(Protocol):
    """An optimizer."""

    built: bool
    variables: list[KerasVariable]
    learning_rate: object
    iterations: KerasVariable
    _variables: list[KerasVariable]
    _trainable_variables: list[KerasVariable]

    def build(self, variables: Sequence[KerasVariable]) -> None:
        """Make the slots of some variables."""

    def apply(self, grads: object, trainable_variables: object, /) -> None:
        """Update variables."""

    def scale_loss(self, loss: jax.Array) -> jax.Array:
        """Return the loss whose gradients `apply` takes."""

    def apply_gradients(
        self, grads_and_vars: object, /, *args: object, **kwargs: object
    ) -> object:
        """Update variables."""

    def stateless_apply(
        self,
        optimizer_variables: Sequence[jax.Array],
        grads: Sequence[jax.Array | None],
        trainable_variables: Sequence[jax.Array],
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        """Return the new values of variables and of slots."""


class KerasLayer(Protocol):
    """A layer."""

    name: str
    built: bool
    variables: list[KerasVariable]
    trainable_variables: list[KerasVariable]
    _trainable_variables: list[KerasVariable]
    _non_trainable_variables: list[KerasVariable]
    _seed_generators: list[KerasSeedGenerator]
    _layers: list[KerasLayer]

    @abc.abstractmethod
    def call(self, *args: Any, **kwargs: Any) -> object:
        """Compute the outputs."""

    @abc.abstractmethod
    def _flatten_layers(self) -> Iterator[KerasLayer]: ...


class CompiledMetrics(Protocol):
    """The container of the metrics that a model was compiled with."""

    built: bool
    _user_metrics: object
    _user_weighted_metrics: object

    def update_state(
        self, y_true: object, y_pred: object, sample_weight: object = None
    ) -> None:
        """Add examples."""


class KerasModel(KerasLayer, Protocol):
    """A model."""

    compiled: bool
    input_dtype: str
    optimizer: KerasOptimizer | None
    metrics: list[KerasMetric]
    run_eagerly: bool
    steps_per_execution: int
    stop_training: bool
    train_function: object
    test_function: object
    predict_function: object
    _compile_metrics: CompiledMetrics | None
    _loss_tracker: KerasMetric
    _call_has_training_arg: bool
    _initial_epoch: int | None
    _jax_state: dict[str, Any] | None
    _jax_state_synced: bool

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Compute the outputs."""

    def compute_metrics(
        self, x: object, y: object, y_pred: object, sample_weight: object
    ) -> dict[str, Any]:
        """Update the metrics, and return their results."""

    def save(self, filepath: object, *args: object, **kwargs: object) -> None:
        """Save the model."""

    def jax_state_sync(self) -> None:
        """Store the state of a running loop in the variables."""

    def _symbolic_build(self, *, data_batch: object) -> None: ...

    def _get_jax_state(self, **parts: bool) -> tuple[list[jax.Array], ...]: ...

    def _compute_loss(self, *args: object, training: bool) -> jax.Array: ...


class FunctionalModel(Protocol):
    """A model whose inputs the program has declared."""

    _inputs_struct: object


class RecurrentLayer(Protocol):
    """A layer that keeps the dropout masks of its cell during a call."""

    cell: object

    def _maybe_reset_dropout_masks(self, cell: object) -> None: ...


class Adapter(Protocol):
    """What a loop reads its batches from."""

    num_batches: int | None
    batch_size: int | None
    has_partial_batch: bool | None
    partial_batch_size: int | None

    def get_jax_iterator(self) -> Iterator[Any]:
        """Return an iterator over batches."""

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Return an iterator over batches of NumPy's arrays."""

    def on_epoch_begin(self) -> None:
        """Begin an epoch."""

    def on_epoch_end(self) -> None:
        """End an epoch."""


class EpochIterator(Protocol):
    """Gives a loop the steps of its epochs."""

    data_adapter: Adapter
    num_batches: int | None
    steps_per_epoch: int | None
    _steps_seen: int
    _current_iterator: Iterator[Any] | None

    def _get_iterator(self) -> Iterator[Any]: ...


class CallbackList(Protocol):
    """All callbacks of a loop."""

    params: dict[str, Any] | None
    _model: KerasModel


# What objects consist of. The public lists contain what the children have, too.


def own_variables(layer: KerasLayer) -> list[KerasVariable]:
    """Return the variables of a layer without those of its layers."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def own_seeds(layer: KerasLayer) -> list[KerasVariable]:
    """Return the variables of a layer's random generators."""
    return [generator.state for generator in layer._seed_generators]


def own_layers(layer: KerasLayer) -> list[KerasLayer]:
    """Return the layers of a layer without those of its layers."""
    return list(layer._layers)


def own_state(obj: KerasOptimizer | KerasMetric) -> list[KerasVariable]:
    """Return the variables of an optimizer or metric without those of its parts."""
    return list(obj._variables)


def all_layers(layer: KerasLayer) -> Iterator[KerasLayer]:
    """Return a layer and its layers at every depth."""
    return layer._flatten_layers()


def has_layers(layer: KerasLayer) -> bool:
    """Return whether a layer knows its layers; one whose making has failed may not."""
    return hasattr(layer, "_layers")


def optimized_variables(optimizer: KerasOptimizer) -> list[KerasVariable]:
    """Return the variables that an optimizer was built for, in its order."""
    return list(optimizer._trainable_variables)


def declared_inputs(model: FunctionalModel) -> object:
    """Return the inputs of a functional model, in the structure that it takes."""
    return model._inputs_struct


def unlisted_metrics(model: KerasModel) -> list[object]:
    """Return the metrics given to `compile` that `model.metrics` does not list yet.

    Keras lists them after the first batch.
    """
    compiled = model._compile_metrics
    if compiled is None or compiled.built:
        return []
    return [compiled._user_metrics, compiled._user_weighted_metrics]


# Variables. The public `dtype` and `value` depend on the scopes for autocasting and for
# stateless calls that are open.


def stored_type(variable: KerasVariable) -> np.dtype[Any]:
    """Return the type of the value that a variable stores."""
    return jnp.dtype(variable._dtype)


def stored_value(variable: KerasVariable) -> jax.Array | None:
    """Return the value that a variable stores; None if it has none."""
    return variable._value


def store(variable: KerasVariable, value: jax.Array) -> None:
    """Replace the value that a variable stores."""
    variable._direct_assign(value)


def autocast(variable: KerasVariable, value: jax.Array) -> jax.Array:
    """Return a value of a variable in the type that layers compute with."""
    return variable._maybe_autocast(value)


def set_first_value(variable: KerasVariable, value: jax.typing.ArrayLike) -> None:
    """Say which value a variable gets that has none yet."""
    # Keras calls the initializer when it leaves a stateless scope.
    variable._initializer = lambda shape, dtype=None: jnp.asarray(value)


@contextlib.contextmanager
def pretend_shapes(
    changed: Sequence[KerasVariable], values: Sequence[jax.Array]
) -> Iterator[None]:
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


def build(model: KerasModel, batch: object) -> None:
    """Build a model, its optimizer and its metrics for batches like one."""
    model._symbolic_build(data_batch=batch)


def call_model(model: KerasModel, x: object, training: bool) -> object:
    """Return the outputs of a model, which may know of training or not."""
    is_told = model._call_has_training_arg
    return model(x, training=training) if is_told else model(x)


def compute_loss(
    model: KerasModel,
    x: object,
    y: object,
    y_pred: object,
    sample_weight: object,
    training: bool,
) -> jax.Array:
    """Return the loss of a model, whose `compute_loss` may know of training or not."""
    return model._compute_loss(x, y, y_pred, sample_weight, training=training)


def update_compiled_metrics(
    model: KerasModel, y: object, y_pred: object, sample_weight: object
) -> None:
    """Add examples to the metrics that a model was compiled with."""
    if model._compile_metrics is not None:
        model._compile_metrics.update_state(y, y_pred, sample_weight)


def loss_tracker(model: KerasModel) -> KerasMetric:
    """Return the metric that has the mean loss of a model."""
    return model._loss_tracker


def model_of(callbacks: CallbackList) -> KerasModel:
    """Return the model of a list of callbacks, while a step has its state."""
    # The public `model` would store the state of the step in the variables.
    return callbacks._model


def first_epoch(model: KerasModel) -> int | None:
    """Return the number that `set_first_epoch` has set; None if it has not."""
    return model._initial_epoch


def set_first_epoch(model: KerasModel, epoch: int | None) -> None:
    """Say with which epoch `fit` begins; None for the one that it was given."""
    # Keras' own callback for backups sets it, too.
    model._initial_epoch = epoch


def has_weights(model: KerasModel) -> bool:
    """Return whether a model's variables have its weights, and no running loop."""
    # On other backends than JAX there is no such state.
    return bool(getattr(model, "_jax_state_synced", True))


def give_weights_back(model: KerasModel) -> None:
    """Let Keras take the values of a model's variables for its weights."""
    model._jax_state_synced = True


def loop_state(model: KerasModel) -> dict[str, Any] | None:
    """Return the state of the latest execution of a loop; None if there is none."""
    return getattr(model, "_jax_state", None)


def set_loop_state(model: KerasModel, state: dict[str, Any] | None) -> None:
    """Replace the state that Keras will store in the variables."""
    model._jax_state = state


_STATE = (
    "trainable_variables",
    "non_trainable_variables",
    "optimizer_variables",
    "metrics_variables",
)


def copy_loop_state(model: KerasModel) -> tuple[list[jax.Array], ...]:
    """Return copies of the variables' values as the state of a training loop."""
    kinds = dict.fromkeys(_STATE, True)
    found = model._get_jax_state(**kinds, purge_model_variables=False)
    copied: tuple[list[jax.Array], ...] = jax.tree.map(jnp.copy, found)
    return copied


def store_loop_state(model: KerasModel, state: Sequence[Sequence[jax.Array]]) -> None:
    """Store the state of a training loop in the variables."""
    model._jax_state = dict(zip(_STATE, state, strict=True))
    model._jax_state_synced = False
    model.jax_state_sync()


def steps_taken(epochs: EpochIterator) -> int:
    """Return how many steps an `EpochIterator` has taken in this pass."""
    return int(epochs._steps_seen)


def is_in_pass(epochs: EpochIterator) -> bool:
    """Return whether an `EpochIterator` goes on with a pass in the next epoch."""
    return epochs._current_iterator is not None


def resume_pass(epochs: EpochIterator, steps: int) -> None:
    """Let an `EpochIterator` go on with a pass in which it has taken some steps."""
    epochs._current_iterator = iter(epochs._get_iterator())
    epochs._steps_seen = steps


def forget_dropout_masks(layer: RecurrentLayer) -> None:
    """Let a recurrent layer draw new masks in its next call."""
    layer._maybe_reset_dropout_masks(layer.cell)


# Names and threads.

# Keras keeps its counters of names in its global state, under this name.
_COUNTS = "object_name_uids"


@contextlib.contextmanager
def restart_numbering() -> Iterator[None]:
    """Run a block in which the first unnamed layer is ``dense``, not ``dense_7``.

    So a function that makes a model gives the same names whenever it is called.
    """
    state = __getattr__("global_state")
    before = state.get_global_attribute(_COUNTS)
    state.set_global_attribute(_COUNTS, None)
    try:
        yield
    finally:
        state.set_global_attribute(_COUNTS, before)


def thread_locals() -> tuple[object, ...]:
    """Return the objects in which Keras has its state per thread.

    They are its stacks of scopes, and of the layers that are being called.
    """
    state = __getattr__("global_state")
    return state.GLOBAL_STATE_TRACKER, state.GLOBAL_SETTINGS_TRACKER
