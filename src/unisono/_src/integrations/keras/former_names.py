"""Names and methods of ``tf.keras`` that Keras 3 has renamed or changed."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import keras

from unisono._src.execution import gradient_tape
from unisono._src.foundation.public_names import publish
from unisono._src.integrations.keras import (
    exporting,
    former_arguments,
    former_files,
    internals,
    optimizers,
    replica_steps,
)
from unisono._src.integrations.keras.internals import (
    KerasMetric,
    KerasModel,
    KerasOptimizer,
    KerasVariable,
)
from unisono._src.saving.export import model_description


@final
class Reduction:
    """The ways in which a loss combines the examples of a batch.

    They are the strings that Keras 3 uses.

    Attributes:
        AUTO: the same as `SUM_OVER_BATCH_SIZE`.
        NONE: one number for each example.
        SUM: the sum of the examples.
        SUM_OVER_BATCH_SIZE: the mean of the examples.

    >>> from unisono import keras
    >>> loss = keras.losses.MeanSquaredError(reduction=keras.losses.Reduction.NONE)
    >>> [float(x) for x in loss([[0.0], [0.0]], [[1.0], [2.0]])]
    [1.0, 4.0]
    """

    AUTO = "sum_over_batch_size"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"


def load_model(
    filepath: str | os.PathLike[str],
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
    options: object = None,
) -> Any:
    """Loads a model that Keras has saved as a file or a directory.

    Args:
        filepath: the path that was passed to `save`.
        custom_objects: classes and functions of your program, by name.
        compile: whether to compile the model as it was before.
        safe_mode: whether code in the file raises an error.
        options: TensorFlow's `LoadOptions`; accepted, no effect.

    Raises:
        ValueError: there is no Keras model at this path.

    >>> import os, tempfile
    >>> from unisono import keras
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> path = os.path.join(tempfile.mkdtemp(), "model")
    >>> model.save(path)
    >>> loaded = keras.models.load_model(path)
    >>> bool(loaded.weights[0].numpy() == model.weights[0].numpy())
    True
    """
    if os.path.exists(os.path.join(filepath, model_description.NAME)):
        raise ValueError(
            f"The model in {os.fspath(filepath)} was exported by "
            "unisono.saved_model.save, without its Python code. Load it with "
            "unisono.saved_model.load."
        )
    return keras.saving.load_model(filepath, custom_objects, compile, safe_mode)


def save_model(
    model: KerasModel,
    filepath: str | os.PathLike[str],
    overwrite: bool = True,
    **kwargs: object,
) -> None:
    """Saves a Keras model, as ``model.save(filepath)`` does.

    Args:
        model: the model.
        filepath: a path that ends in ``.keras`` or ``.h5`` for a file. A path without
            an extension becomes a directory with the same contents.
        overwrite: whether an existing model is replaced without asking.
        **kwargs: further arguments of `keras.saving.save_model`.

    >>> import os, tempfile
    >>> from unisono import keras
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> path = os.path.join(tempfile.mkdtemp(), "model")
    >>> keras.models.save_model(model, path)
    >>> os.path.isdir(path)
    True
    """
    model.save(filepath, overwrite, **kwargs)


def _wrap_save(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `Model.save` that saves a directory if the path has no ending.

    Keras raises there, and asks for a path with an ending.
    """

    @functools.wraps(original)
    def save(
        self: KerasModel,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: object,
    ) -> None:
        kind = kwargs.get("save_format")
        is_bare = former_files.is_directory(filepath)
        if not is_bare or zipped is not None or kind not in (None, "tf"):
            original(self, filepath, overwrite, zipped, **kwargs)
            return
        for name in ("save_format", "options", "signatures", "save_traces"):
            kwargs.pop(name, None)  # They were about TensorFlow's format.
        target = os.path.abspath(filepath)
        if _may_replace(target, overwrite):
            _save_directory(
                lambda path: original(self, path, True, False, **kwargs), target
            )

    return save


def _may_replace(target: str, overwrite: bool) -> bool:
    """Return whether a directory may be written; ask if `overwrite` is False."""
    if not os.path.exists(target):
        return True
    is_model = os.path.exists(os.path.join(target, "config.json"))
    if not is_model and (os.path.isfile(target) or os.listdir(target)):
        raise ValueError(
            f"A model is to be saved as the directory {target}, where there is "
            "something else. Remove it, or save to another path."
        )
    return overwrite or internals.ask_to_proceed_with_overwrite(target)


def _save_directory(save: Callable[[str], None], target: str) -> None:
    """Save a model as a directory beside the target, and put it in its place.

    Keras itself cannot write to a directory that it has written before.
    """
    parent = os.path.dirname(target)
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=parent) as folder:
        made = os.path.join(folder, "new")
        save(made)
        if os.path.isdir(target):
            # A directory cannot be replaced by another that is
            # not empty, so it moves aside.
            os.replace(target, os.path.join(folder, "old"))
        os.replace(made, target)


def _reset_states(self: KerasMetric) -> None:
    """Resets the metric; this is the old name of `reset_state`."""
    self.reset_state()


def _minimize(
    self: KerasOptimizer,
    loss: object,
    var_list: Sequence[KerasVariable] | Callable[[], Sequence[KerasVariable]],
    tape: gradient_tape.GradientTape | None = None,
) -> object:
    """Updates variables so that a loss gets smaller, by the gradient of a tape.

    The loss is a number that `tape` has recorded, or a function that returns it.
    """
    found, variables = gradient_tape.differentiate_loss(loss, var_list, tape)
    return self.apply_gradients(zip(found, variables, strict=True))


def _save_spec(
    self: KerasModel, dynamic_batch: bool = True
) -> tuple[tuple[object, ...], dict[str, object]] | None:
    """Returns the specs of arguments, and of keywords; None if they are not known."""
    inputs = exporting.find_inputs(self) if self.built else {}
    return (tuple(inputs.values()), {}) if inputs else None


@final
class _FormerMetrics:
    """The metrics that a model was compiled with, under their old name.

    Args:
        model: the model.
    """

    def __init__(self, model: KerasModel) -> None:
        self._model = model

    def update_state(
        self, y: object, y_pred: object, sample_weight: object = None
    ) -> None:
        """Add examples to the metrics, but not to the mean loss."""
        internals.update_compiled_metrics(self._model, y, y_pred, sample_weight)


def _compiled_loss(
    self: KerasModel,
    y: object,
    y_pred: object,
    sample_weight: object = None,
    regularization_losses: object = None,
) -> jax.Array:
    """Returns the loss that the model was compiled with, and adds it to the mean loss.

    What layers and regularizers add is part of it, whether it is passed or not.
    """
    loss = internals.compute_loss(self, None, y, y_pred, sample_weight, training=True)
    replica_steps.track_loss(self, loss, y_pred)
    return loss


def _get_rate(self: KerasOptimizer) -> object:
    """The learning rate; this is the old name of `learning_rate`."""
    return self.learning_rate


def _set_rate(self: KerasOptimizer, value: object) -> None:
    self.learning_rate = value


@functools.cache
def install() -> None:
    """Give classes of Keras the methods that they had in ``tf.keras``.

    Objects come from Keras, so no namespace of ours can do this.
    """
    metric, optimizer = keras.metrics.Metric, internals.BaseOptimizer
    saver = keras.callbacks.ModelCheckpoint
    for owner, name, value in [
        (metric, "reset_states", _reset_states),
        (optimizer, "minimize", _minimize),
        (optimizer, "lr", property(_get_rate, _set_rate)),
        (keras.Model, "save_spec", _save_spec),
        (keras.Model, "compiled_metrics", property(_FormerMetrics)),
        (keras.Model, "compiled_loss", _compiled_loss),
    ]:
        if not hasattr(owner, name):
            setattr(owner, name, value)
    for owner, name, wrap in [
        (keras.Model, "save", _wrap_save),
        (keras.Model, "save_weights", former_files.wrap_save_weights),
        (keras.Model, "load_weights", former_files.wrap_load_weights),
        (saver, "__init__", former_files.wrap_checkpoint_init),
        (keras.Layer, "add_weight", former_arguments.wrap_add_weight),
        (metric, "add_weight", former_arguments.wrap_metric_weight),
        (optimizer, "__init__", former_arguments.wrap_optimizer_init),
        (optimizer, "apply_gradients", former_arguments.wrap_apply_gradients),
        # Outside scopes and functions, too: a loop with a LossScaleOptimizer.
        (internals.ops, "cond", optimizers.wrap_cond),
    ]:
        setattr(owner, name, wrap(getattr(owner, name)))


publish("unisono.keras.losses", Reduction)
publish("unisono.keras.models", load_model, save_model)
