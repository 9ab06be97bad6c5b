"""`EstimatorSpec`: what a model function returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.estimator import hooks as hooks_lib
from unisono._src.estimator.variable_store import Store
from unisono._src.foundation.public_names import publish
from unisono._src.state.variables import Variable
from unisono._src.training import optimizers
from unisono._src.values import array_operators


class ModeKeys:
    """What a model function is called for."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


@final
@dataclasses.dataclass(frozen=True)
class TrainOp:
    """What `minimize` returns: whom to update, and by what.

    Attributes:
        optimizer: Optax's, Keras' or ours.
        loss: what it makes smaller.
        var_list: whom it updates; None for every trainable variable.
    """

    optimizer: Any
    loss: Any
    var_list: tuple[Any, ...] | None = None

    def variables(self, store: Store) -> list[Variable]:
        """The variables it updates, as ours."""
        if self.var_list is None:
            return store.trainable
        own = [array_operators.own(v) for v in self.var_list]
        kept = {id(v) for v in store.variables.values()}
        for given, found in zip(self.var_list, own, strict=True):
            if id(found) not in kept:
                raise ValueError(
                    f"`minimize` was given {given!r}, which the model_fn did not make. "
                    "Make every variable inside the model_fn, so that the Estimator "
                    "can save it."
                )
        return own

    def update(self, gradients: Sequence[Any] | None, store: Store) -> None:
        """Apply gradients in replica context; None only makes the state."""
        variables = self.variables(store)
        if not variables:
            raise ValueError(
                "`minimize` found nothing to update: the model_fn made no trainable "
                "variable. Make variables or Keras layers inside the model_fn; those "
                "of a Flax module that is made there cannot be kept."
            )
        targets: Sequence[Any] = variables
        chosen = self.optimizer
        if hasattr(chosen, "init") and hasattr(chosen, "update"):
            chosen = optimizers.Optimizer(chosen, variables)
        elif not isinstance(chosen, optimizers.Optimizer):
            assert self.var_list is not None
            targets = self.var_list
            if not chosen.built:
                chosen.build(list(targets))
        if gradients is not None:
            chosen.apply_gradients(zip(gradients, targets, strict=True))


def minimize(
    optimizer: Any,
    loss: Any,
    var_list: Sequence[Any] | None = None,
    global_step: object = None,
) -> TrainOp:
    """The `train_op` that makes a loss smaller, as TensorFlow 1's optimizers gave it.

    The estimator takes the gradient of the loss on each replica, averages it over the
    replicas and lets the optimizer update every copy.

    Args:
        optimizer: an `optax.GradientTransformation`, a `unisono.optimizers.Optimizer`
            or a Keras optimizer.
        loss: the loss that goes into the `EstimatorSpec`.
        var_list: whom to update; default every trainable variable that the model
            function has made. A Keras optimizer needs it: `model.trainable_variables`.
        global_step: accepted; the estimator counts.

    Raises:
        TypeError: it is no optimizer.
        ValueError: a Keras optimizer without `var_list`.
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
    """What a model function returns; what it must hold depends on the mode.

    Args:
        mode: one of `ModeKeys`.
        predictions: an array or a dict of arrays with the batch as first axis; needed
            to predict.
        loss: a scalar, that of the replica's own batch; needed to train and evaluate.
        train_op: what `minimize` returned, or a function without arguments that updates
            the variables by itself, in replica context; needed to train.
        eval_metric_ops: by name a metric object that the model function has updated,
            or an array whose mean over all examples is wanted.
        export_outputs: by name what an exported model returns; default `predictions`.
        training_chief_hooks: hooks for training, on the first worker only.
        training_hooks: hooks for training.
        evaluation_hooks: hooks for evaluation.
        prediction_hooks: hooks for prediction.

    Raises:
        ValueError: something is missing or has the wrong shape.
        TypeError: something is of the wrong type.
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
            raise ValueError("Missing predictions: an EstimatorSpec for PREDICT.")
        for name in ("eval_metric_ops", "export_outputs"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Mapping):
                raise TypeError(f"{name} must be a dict, given: {given!r}.")
        for name in _HOOKS:
            hooks_lib.checked(getattr(self, name), hooks_lib.SessionRunHook)

    def _check_loss(self) -> None:
        if self.loss is None:
            if self.mode != ModeKeys.PREDICT:
                raise ValueError(f"Missing loss: an EstimatorSpec for {self.mode}.")
            return
        shape = jnp.shape(self.loss)
        if shape not in ((), (1,)):
            raise ValueError(
                f"Loss must be scalar, given one of shape {shape}. Average or add it "
                "up over the examples of the batch."
            )
        object.__setattr__(self, "loss", jnp.reshape(self.loss, ()))

    def _check_train_op(self) -> None:
        if self.mode != ModeKeys.TRAIN:
            return
        if self.train_op is None:
            raise ValueError("Missing train_op: an EstimatorSpec for train.")
        if not isinstance(self.train_op, TrainOp) and not callable(self.train_op):
            raise TypeError(
                "train_op must be what unisono.estimator.minimize returned, or a "
                f"function without arguments; given: {self.train_op!r}."
            )

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of an evaluation by name."""
        return dict(self.eval_metric_ops or {})


_HOOKS = (
    "training_chief_hooks",
    "training_hooks",
    "evaluation_hooks",
    "prediction_hooks",
)


def rows_of(tree: Any) -> int:
    """How many examples a batch has; 1 if it has no first axis."""
    for leaf in jax.tree.leaves(tree):
        shape = jnp.shape(leaf)
        if shape:
            return int(shape[0])
    return 1


publish("unisono.estimator", EstimatorSpec, ModeKeys, minimize)
