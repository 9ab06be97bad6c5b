"""Defines `EstimatorSpec`, which a model function returns, and its parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.estimator import hooks as hooks_lib
from unisono._src.estimator.variable_store import VariableStore
from unisono._src.state.variables import Variable
from unisono._src.training import optimizers
from unisono._src.values import array_operators


class ModeKeys:
    """The names of the modes in which a model function is called.

    >>> import unisono as uni
    >>> modes = uni.estimator.ModeKeys
    >>> modes.TRAIN, modes.EVAL, modes.PREDICT
    ('train', 'eval', 'infer')
    """

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


@final
@dataclasses.dataclass(frozen=True)
class TrainOp:
    """Describes an update of variables by an optimizer; `minimize` returns it.

    It is a description because the gradient does not exist yet: the estimator traces
    the model function under `value_and_grad` and applies the optimizer afterwards
    (docs/decisions/0018).

    Attributes:
        optimizer: an Optax transformation, a Keras optimizer or our `Optimizer`.
        loss: the loss to minimize.
        var_list: the variables to update; None for every trainable variable.
    """

    optimizer: Any
    loss: jax.Array
    var_list: tuple[object, ...] | None = None

    def variables(self, store: VariableStore) -> list[Variable]:
        """Returns the variables to update, as `Variable`s of this package.

        Raises:
            ValueError: the model function did not make one of `var_list`.
        """
        if self.var_list is None:
            return store.trainable
        own = [array_operators.find_own_variable(v) for v in self.var_list]
        # Compared by identity: `==` between variables compares their values.
        stored = {id(v) for v in store.variables.values()}
        for given, found in zip(self.var_list, own, strict=True):
            if id(found) not in stored:
                raise ValueError(
                    f"`minimize` was given {given!r}, which the model_fn did not make. "
                    "Make every variable inside the model_fn, so that the Estimator "
                    "can save it."
                )
        return own

    def update(self, gradients: Sequence[Any] | None, store: VariableStore) -> None:
        """Applies gradients to the variables, in replica context.

        Args:
            gradients: one for each of `variables`; None only makes the variables of the
                optimizer.
            store: the variables of the model function.

        Raises:
            ValueError: there is no variable to update.
        """
        variables = self.variables(store)
        if not variables:
            raise ValueError(
                "`minimize` found nothing to update: the model_fn made no trainable "
                "variable. Make variables or Keras layers inside the model_fn; the "
                "variables of a Flax module that is made there are not found again on "
                "the next call."
            )
        targets: Sequence[Any] = variables
        chosen = self.optimizer
        # Optax' transformations are named tuples of these two functions.
        if hasattr(chosen, "init") and hasattr(chosen, "update"):
            # Made again on every call; its variables come from the store by name.
            chosen = optimizers.Optimizer(chosen, variables)
        elif not isinstance(chosen, optimizers.Optimizer):
            # A Keras optimizer knows its variables by Keras' own objects.
            assert self.var_list is not None
            targets = self.var_list
            if not chosen.built:
                chosen.build(list(targets))
        if gradients is not None:
            chosen.apply_gradients(zip(gradients, targets, strict=True))


def minimize(
    optimizer: object,
    loss: jax.Array,
    var_list: Sequence[object] | None = None,
    global_step: object = None,
) -> TrainOp:
    """Returns a `train_op` that minimizes a loss.

    It replaces ``optimizer.minimize(loss, global_step)`` of TensorFlow 1. The estimator
    computes the gradient of the loss on each replica, averages it over the replicas,
    and lets the optimizer update every copy.

    Args:
        optimizer: an `optax.GradientTransformation`, a `unisono.optimizers.Optimizer`
            or a Keras optimizer.
        loss: the loss that you also pass to `EstimatorSpec`.
        var_list: the variables to update; by default every trainable variable that the
            model function creates. A Keras optimizer requires it: pass
            `model.trainable_variables`.
        global_step: accepted and ignored; the estimator counts the steps.

    Returns:
        The `train_op` to pass to `EstimatorSpec`.

    Raises:
        TypeError: `optimizer` is not an optimizer.
        ValueError: a Keras optimizer is given without `var_list`.

    >>> import tempfile
    >>> import optax
    >>> import unisono as uni
    >>> def model_fn(features, mode):
    ...     w = uni.Variable(3.0, name="w")
    ...     train_op = uni.estimator.minimize(optax.sgd(0.5), loss := w * 2.0)
    ...     return uni.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     estimator = uni.estimator.Estimator(model_fn, directory)
    ...     _ = estimator.train(lambda: uni.data.Dataset.range(2).batch(1))
    ...     float(estimator.get_variable_value("w"))  # 3.0 - 2 steps * 0.5 * 2.0
    1.0
    """
    is_optax = hasattr(optimizer, "init") and hasattr(optimizer, "update")
    is_ours = isinstance(optimizer, optimizers.Optimizer)
    if not is_optax and not hasattr(optimizer, "apply_gradients"):
        raise TypeError(
            "Expected an Optax transformation, a Keras optimizer or a "
            f"unisono.optimizers.Optimizer, received {optimizer!r}."
        )
    if var_list is None and not is_optax and not is_ours:
        raise ValueError(
            "A Keras optimizer needs its variables: minimize(optimizer, loss, "
            "model.trainable_variables)."
        )
    return TrainOp(optimizer, loss, None if var_list is None else tuple(var_list))


@dataclasses.dataclass(frozen=True)
class EstimatorSpec:
    """Describes a model for one mode; a model function returns it.

    Args:
        mode: one of `ModeKeys`.
        predictions: an array or a dict of arrays with the batch as first axis; required
            to predict.
        loss: the loss of the replica's own batch, a scalar; required to train and to
            evaluate.
        train_op: the result of `minimize`, or a function without arguments that updates
            the variables itself, in replica context; required to train.
        eval_metric_ops: a dict of metric objects that the model function has updated,
            or of arrays to average over all examples.
        export_outputs: a dict of the outputs of an exported model, by signature; by
            default `predictions`.
        training_chief_hooks: hooks for training, on the first worker only.
        training_hooks: hooks for training.
        evaluation_hooks: hooks for evaluation.
        prediction_hooks: hooks for prediction.

    Raises:
        ValueError: an argument that the mode requires is missing, or the loss is not a
            scalar.
        TypeError: an argument has the wrong type.

    >>> import unisono as uni
    >>> modes = uni.estimator.ModeKeys
    >>> spec = uni.estimator.EstimatorSpec(modes.EVAL, loss=0.5)
    >>> float(spec.loss)
    0.5
    >>> uni.estimator.EstimatorSpec(modes.PREDICT, loss=0.5)
    Traceback (most recent call last):
        ...
    ValueError: Missing predictions...
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    export_outputs: Mapping[str, Any] | None = None
    training_chief_hooks: Sequence[hooks_lib.SessionRunHook] | None = None
    training_hooks: Sequence[hooks_lib.SessionRunHook] | None = None
    evaluation_hooks: Sequence[hooks_lib.SessionRunHook] | None = None
    prediction_hooks: Sequence[hooks_lib.SessionRunHook] | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {MODES}, received {self.mode!r}.")
        self._check_loss()
        self._check_train_op()
        if self.mode == ModeKeys.PREDICT and self.predictions is None:
            raise ValueError(
                "Missing predictions: an EstimatorSpec for the mode 'infer' needs them."
            )
        for name in ("eval_metric_ops", "export_outputs"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Mapping):
                raise TypeError(f"{name} must be a dict, given: {given!r}.")
        for name in _HOOKS:
            hooks_lib.check_kind(getattr(self, name), hooks_lib.SessionRunHook)

    def _check_loss(self) -> None:
        if self.loss is None:
            if self.mode != ModeKeys.PREDICT:
                raise ValueError(
                    f"Missing loss: an EstimatorSpec for the mode {self.mode!r} needs "
                    "it."
                )
            return
        shape = jnp.shape(self.loss)
        if shape not in ((), (1,)):
            raise ValueError(
                f"Loss must be scalar, given one of shape {shape}. Average or add it "
                "up over the examples of the batch."
            )
        # TensorFlow takes a loss of shape (1,), too.
        object.__setattr__(self, "loss", jnp.reshape(self.loss, ()))

    def _check_train_op(self) -> None:
        if self.mode != ModeKeys.TRAIN:
            return
        if self.train_op is None:
            raise ValueError(
                "Missing train_op: an EstimatorSpec for the mode 'train' needs it. "
                "Pass unisono.estimator.minimize(optimizer, loss)."
            )
        if not isinstance(self.train_op, TrainOp) and not callable(self.train_op):
            raise TypeError(
                "train_op must be what unisono.estimator.minimize returned, or a "
                f"function without arguments; given: {self.train_op!r}."
            )

    @property
    def metrics(self) -> dict[str, Any]:
        """Returns `eval_metric_ops` as a dict, which is empty if there are none."""
        return dict(self.eval_metric_ops or {})


_HOOKS = (
    "training_chief_hooks",
    "training_hooks",
    "evaluation_hooks",
    "prediction_hooks",
)


def rows_of(tree: object) -> int:
    """Returns the number of examples of a batch, or 1 if no array has an axis."""
    for leaf in jax.tree.leaves(tree):
        shape = jnp.shape(leaf)
        if shape:
            return int(shape[0])
    return 1
