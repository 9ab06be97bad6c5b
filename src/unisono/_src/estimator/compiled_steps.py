"""Compiles the steps of a model function, for one mode and one strategy."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.estimator import estimator_spec as spec_lib
from unisono._src.estimator.estimator_spec import EstimatorSpec, ModeKeys, TrainOp
from unisono._src.estimator.hooks import SessionRunHook
from unisono._src.estimator.variable_store import VariableStore
from unisono._src.execution import function, gradients
from unisono._src.execution.specs import TensorSpec
from unisono._src.foundation import options, wide_numbers
from unisono._src.state.variables import Variable
from unisono._src.strategies.base import Strategy
from unisono._src.training import metrics
from unisono._src.workers import process_group

ModelCall = Callable[[object], EstimatorSpec]


# The life of a model function here: `build` traces it once, so that its variables exist
# and a checkpoint can fill them; then `step` is compiled, and each trace of it calls
# the function again, which finds the same variables by name (decision 0018).
class ModelSteps(abc.ABC):
    """Holds a model function, its variables and its compiled step; abstract.

    Args:
        call: calls the model function for a batch, in replica context.
        strategy: the strategy that runs the model function.

    Attributes:
        mode: the mode that the model function is called with.
        store: the variables of the model function.
        hooks: the hooks that the model function returned for this mode.
        is_built: whether the variables exist.
    """

    mode: ClassVar[str]

    def __init__(self, call: ModelCall, strategy: Strategy) -> None:
        self._call = call
        self.strategy = strategy
        self.store = VariableStore()
        self.hooks: tuple[SessionRunHook, ...] = ()
        self.is_built = False
        with strategy.scope():
            # First of all: the model function may read it while it is traced.
            self.store.make_global_step()

    def build(self, batch: object, has_values: bool) -> None:
        """Makes the variables by tracing the model function once.

        Args:
            batch: any batch; only its shapes and types are used.
            has_values: whether a checkpoint will give the variables their values; their
                initial values are then not computed.
        """
        if self.is_built:
            return
        if has_values:
            self.store.will_be_restored = lambda given: is_checkpointed(
                self.mode, given
            )

        def build(batch: object) -> None:
            self.strategy.run(self._build, args=(batch,))

        # Lowering traces the function and makes its variables, but runs nothing
        # (docs/decisions/0018).
        function.Function(build).lowered(batch)
        self.is_built = True

    def _build(self, batch: object) -> None:
        with self.store.call_scope():
            self._read_spec(self._call(batch))

    @abc.abstractmethod
    def _read_spec(self, spec: EstimatorSpec) -> None:
        """Takes the parts of the first spec that do not depend on the batch."""


@final
class Training(ModelSteps):
    """Updates the variables batch by batch.

    The gradient is that of the mean of the replicas' losses.
    """

    mode = ModeKeys.TRAIN

    def __init__(self, call: ModelCall, strategy: Strategy) -> None:
        super().__init__(call, strategy)
        self._variables: list[Variable] | None = None
        self.step = function.Function(self._step, name="train_step")

    def _read_spec(self, spec: EstimatorSpec) -> None:
        self.hooks = (*(spec.training_hooks or ()), *_chief_hooks(spec))
        if isinstance(spec.train_op, TrainOp):
            self._variables = spec.train_op.variables(self.store)
            # Without gradients this only makes the variables of the optimizer, so that
            # a checkpoint can restore them before the first step.
            spec.train_op.update(None, self.store)
        else:
            # A function of the program: its own call makes what variables it needs.
            spec.train_op()

    def _step(self, batch: object) -> jax.Array:
        done = self.store.global_step.value()
        losses = self.strategy.run(self._run_replica, args=(batch,))
        # Assigned, not added: a model function that counts the step itself has already
        # added one.
        self.store.global_step.assign(done + 1, read_value=False)
        mean: jax.Array = self.strategy.reduce(options.ReduceOp.MEAN, losses, axis=None)
        return mean

    def _run_replica(self, batch: object) -> jax.Array:
        with self.store.call_scope():
            if self._variables is not None:
                return self._descend(batch, self._variables)
            spec = self._call(batch)
            spec.train_op()
            loss: jax.Array = spec.loss
            return loss

    def _descend(self, batch: object, variables: list[Variable]) -> jax.Array:
        """Applies the gradients of one batch and returns the loss of this replica."""
        # Optimizers sum the gradients of the replicas. With each loss divided by their
        # number, the sum is the gradient of the mean.
        share = 1.0 / self.strategy.num_replicas_in_sync
        # The call happens inside the gradient, and its spec must come out of there.
        seen: list[TrainOp] = []

        # The train_op is taken from this call: its optimizer may hold a learning rate
        # that this trace computed from the global step.
        def forward() -> tuple[jax.Array, jax.Array]:
            spec = self._call(batch)
            seen.append(spec.train_op)
            return spec.loss * share, spec.loss

        both = gradients.value_and_grad(forward, variables, has_aux=True)
        (_, loss), found = both()
        seen[-1].update(found, self.store)
        return loss


def _chief_hooks(spec: EstimatorSpec) -> tuple[SessionRunHook, ...]:
    is_chief = process_group.current().is_chief
    return tuple(spec.training_chief_hooks or ()) if is_chief else ()


@final
class Evaluation(ModelSteps):
    """Updates the metrics batch by batch.

    Attributes:
        metrics: by name, the metrics of the model function and the mean loss.
    """

    mode = ModeKeys.EVAL

    def __init__(self, call: ModelCall, strategy: Strategy) -> None:
        super().__init__(call, strategy)
        self.metrics: dict[str, Any] = {}
        self.step = function.Function(self._step, name="evaluation_step")

    def _read_spec(self, spec: EstimatorSpec) -> None:
        self.hooks = tuple(spec.evaluation_hooks or ())
        # Without examples nothing is counted; the metrics and their variables are made.
        self.metrics = self._update_metrics(spec, has_examples=False)

    def _step(self, batch: object) -> None:
        self.strategy.run(self._run_replica, args=(batch,))

    def _run_replica(self, batch: object) -> None:
        with self.store.call_scope():
            self._update_metrics(self._call(batch), spec_lib.rows_of(batch) > 0)

    def _update_metrics(
        self, spec: EstimatorSpec, has_examples: bool
    ) -> dict[str, Any]:
        """Updates a mean for the loss and for each array in `eval_metric_ops`.

        Args:
            spec: the spec of one batch.
            has_examples: whether the batch has examples; in the last step some replicas
                get empty batches, whose loss would count as 0 or NaN.

        Returns:
            All metrics by name, with those that the model function updates itself.
        """
        found: dict[str, Any] = {}
        for name, given in {"loss": spec.loss, **spec.metrics}.items():
            if hasattr(given, "result"):
                found[name] = given
                continue
            value = wide_numbers.as_jax(given, None, f"the metric {name!r}")
            # Made again on every call, but the store finds its variables by this name.
            found[name] = metrics.Mean(name=f"evaluation/{name}")
            if has_examples and value.size:
                found[name].update_state(value.astype(jnp.float32))
        return found

    def reset(self) -> None:
        """Sets all metrics back to their initial state."""
        with self.strategy.scope():
            for metric in self.metrics.values():
                metric.reset_state()

    def results(self) -> dict[str, np.ndarray]:
        """Returns the results of the metrics by name, as NumPy arrays."""
        with self.strategy.scope():
            return {n: np.asarray(m.result()) for n, m in self.metrics.items()}


@final
class Prediction(ModelSteps):
    """Computes predictions batch by batch, on one device.

    Attributes:
        outputs: the names of the signatures of an exported model.
    """

    mode = ModeKeys.PREDICT

    def __init__(self, call: ModelCall, strategy: Strategy) -> None:
        super().__init__(call, strategy)
        self.outputs: tuple[str, ...] = ()
        self.step = function.Function(self._step, name="prediction_step")

    def _read_spec(self, spec: EstimatorSpec) -> None:
        self.hooks = tuple(spec.prediction_hooks or ())
        self.outputs = ("serving_default", *(spec.export_outputs or ()))

    def _step(self, batch: object) -> object:
        return self.strategy.run(self._run_replica, args=(batch,))

    def _run_replica(self, batch: object) -> object:
        with self.store.call_scope():
            return self._call(batch).predictions

    def signature_outputs(self, features: object) -> dict[str, dict[str, Any]]:
        """Returns the outputs of each signature of an exported model.

        A signature whose output is not a dict returns it under the name ``output``.
        """
        # Without `strategy.run`: an exported model runs on one device.
        with self.store.call_scope():
            spec = self._call(features)
        outputs = dict(spec.export_outputs or {})
        # As in TensorFlow, the predictions are the default
        # signature, unless one is given.
        outputs.setdefault("serving_default", spec.predictions)
        return {name: _as_dict(value) for name, value in outputs.items()}


def _as_dict(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {"output": value}


def is_checkpointed(mode: str, given: dict[str, Any]) -> bool:
    """Whether checkpoints have the values of a variable in a mode.

    In training they have all variables. In other modes they lack those with one value
    per replica: these belong to metrics, which training does not make.

    Args:
        mode: one of `ModeKeys`.
        given: the arguments that the variable is made with.
    """
    on_read = options.VariableSynchronization.ON_READ
    return mode == ModeKeys.TRAIN or given["synchronization"] is not on_read


def checkpointed_variables(built: ModelSteps) -> dict[str, Variable]:
    """Returns the variables whose values come from checkpoints, by name."""
    return {
        name: v
        for name, v in built.store.variables.items()
        if is_checkpointed(built.mode, {"synchronization": v.synchronization})
    }


def zero_batch(features: object) -> object:
    """Returns a batch of zeros for the specs of features; unknown sizes become 1."""

    def leaf(s: TensorSpec) -> np.ndarray:
        return np.zeros([1 if n is None else n for n in s.shape], s.dtype)

    return jax.tree.map(leaf, features)
