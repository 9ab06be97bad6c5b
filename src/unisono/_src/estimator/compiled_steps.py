"""The compiled steps of a model function, for one mode and one strategy."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.estimator import estimator_spec as spec_lib
from unisono._src.estimator.estimator_spec import EstimatorSpec, ModeKeys, TrainOp
from unisono._src.estimator.variable_store import Store
from unisono._src.execution import function, gradients
from unisono._src.foundation import options
from unisono._src.training import metrics
from unisono._src.workers import process_group

ModelCall = Callable[[Any], EstimatorSpec]


class Built(abc.ABC):
    """A model function whose variables exist; abstract.

    Args:
        call: calls the model function for a batch, in replica context.
        strategy: runs it.

    Attributes:
        mode: what it is called for.
        store: its variables.
        hooks: those that it has given.
    """

    mode: str

    def __init__(self, call: ModelCall, strategy: Any) -> None:
        self._call = call
        self.strategy = strategy
        self.store = Store()
        self.hooks: tuple[Any, ...] = ()
        self.is_built = False
        with strategy.scope():
            self.store.make_global_step()

    def build(self, batch: Any, has_values: bool) -> None:
        """Make the variables; nothing is computed with the batch but its shapes.

        Args:
            batch: any batch.
            has_values: whether a checkpoint will give the variables their values.
        """
        if self.is_built:
            return
        if has_values:
            self.store.is_awaited = lambda given: is_kept(self.mode, given)

        def build(batch: Any) -> None:
            self.strategy.run(self._build, args=(batch,))

        function.Function(build).lowered(batch)
        self.is_built = True

    def _build(self, batch: Any) -> None:
        with self.store.called():
            self._look(self._call(batch))

    @abc.abstractmethod
    def _look(self, spec: EstimatorSpec) -> None:
        """Take from the first spec what does not depend on a batch."""


@final
class Training(Built):
    """Updates variables, batch by batch.

    The gradient is that of the mean, over the replicas, of the losses they give.
    """

    mode = ModeKeys.TRAIN

    def __init__(self, call: ModelCall, strategy: Any) -> None:
        super().__init__(call, strategy)
        self._variables: list[Any] | None = None
        self.step = function.Function(self._step, name="train_step")

    def _look(self, spec: EstimatorSpec) -> None:
        self.hooks = (*(spec.training_hooks or ()), *_chief_hooks(spec))
        if isinstance(spec.train_op, TrainOp):
            self._variables = spec.train_op.variables(self.store)
            spec.train_op.update(None, self.store)
        else:
            spec.train_op()

    def _step(self, batch: Any) -> Any:
        done = self.store.global_step.value()
        losses = self.strategy.run(self._replica, args=(batch,))
        # Not added: a model function that counts by itself has done so already.
        self.store.global_step.assign(done + 1, read_value=False)
        return self.strategy.reduce(options.ReduceOp.MEAN, losses, axis=None)

    def _replica(self, batch: Any) -> Any:
        with self.store.called():
            if self._variables is not None:
                return self._descend(batch, self._variables)
            spec = self._call(batch)
            spec.train_op()
            return spec.loss

    def _descend(self, batch: Any, variables: list[Any]) -> Any:
        """One step against the gradient of the mean over the replicas."""
        # Optimizers add up what the replicas give.
        share = 1.0 / self.strategy.num_replicas_in_sync
        seen: list[TrainOp] = []

        def forward() -> tuple[Any, Any]:
            spec = self._call(batch)
            seen.append(spec.train_op)
            return spec.loss * share, spec.loss

        both = gradients.value_and_grad(forward, variables, has_aux=True)
        (_, loss), found = both()
        seen[-1].update(found, self.store)
        return loss


def _chief_hooks(spec: EstimatorSpec) -> tuple[Any, ...]:
    is_chief = process_group.current().is_chief
    return tuple(spec.training_chief_hooks or ()) if is_chief else ()


@final
class Evaluation(Built):
    """Adds batches up in metrics.

    Attributes:
        metrics: by name, those of the model function and the mean loss.
    """

    mode = ModeKeys.EVAL

    def __init__(self, call: ModelCall, strategy: Any) -> None:
        super().__init__(call, strategy)
        self.metrics: dict[str, Any] = {}
        self.step = function.Function(self._step, name="evaluation_step")

    def _look(self, spec: EstimatorSpec) -> None:
        self.hooks = tuple(spec.evaluation_hooks or ())
        self.metrics = self._counted(spec, is_there=False)

    def _step(self, batch: Any) -> None:
        self.strategy.run(self._replica, args=(batch,))

    def _replica(self, batch: Any) -> None:
        with self.store.called():
            self._counted(self._call(batch), spec_lib.rows_of(batch) > 0)

    def _counted(self, spec: EstimatorSpec, is_there: bool) -> dict[str, Any]:
        """Add what the model function has left to us; every metric by name."""
        found: dict[str, Any] = {}
        for name, given in {"loss": spec.loss, **spec.metrics}.items():
            if hasattr(given, "result"):
                found[name] = given
                continue
            value = jnp.asarray(given)
            found[name] = metrics.Mean(name=f"evaluation/{name}")
            if is_there and value.size:
                found[name].update_state(value.astype(jnp.float32))
        return found

    def reset(self) -> None:
        """Start from zero."""
        with self.strategy.scope():
            for metric in self.metrics.values():
                metric.reset_state()

    def results(self) -> dict[str, Any]:
        """What the metrics say, as NumPy values."""
        with self.strategy.scope():
            return {n: np.asarray(m.result()) for n, m in self.metrics.items()}


@final
class Prediction(Built):
    """Gives predictions, batch by batch, on one device.

    Attributes:
        outputs: names of what an exported model returns.
    """

    mode = ModeKeys.PREDICT

    def __init__(self, call: ModelCall, strategy: Any) -> None:
        super().__init__(call, strategy)
        self.outputs: tuple[str, ...] = ()
        self.step = function.Function(self._step, name="prediction_step")

    def _look(self, spec: EstimatorSpec) -> None:
        self.hooks = tuple(spec.prediction_hooks or ())
        self.outputs = ("serving_default", *(spec.export_outputs or ()))

    def _step(self, batch: Any) -> Any:
        return self.strategy.run(self._replica, args=(batch,))

    def _replica(self, batch: Any) -> Any:
        with self.store.called():
            return self._call(batch).predictions

    def exported(self, features: Any) -> dict[str, Any]:
        """What an exported model returns for each of its signatures."""
        with self.store.called():
            spec = self._call(features)
        outputs = dict(spec.export_outputs or {})
        outputs.setdefault("serving_default", spec.predictions)
        return {name: _as_dict(value) for name, value in outputs.items()}


def _as_dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {"output": value}


def is_kept(mode: str, given: dict[str, Any]) -> bool:
    """Whether a variable of some arguments comes from checkpoints in a mode.

    In training all do; else not those that count per replica, which metrics have.
    """
    on_read = options.VariableSynchronization.ON_READ
    return mode == ModeKeys.TRAIN or given["synchronization"] is not on_read


def kept(built: Built) -> dict[str, Any]:
    """The variables that come from checkpoints."""
    return {
        name: v
        for name, v in built.store.variables.items()
        if is_kept(built.mode, {"synchronization": v.synchronization})
    }


def zeros(features: Any) -> Any:
    """A batch of one example, or of the sizes that specs have."""

    def leaf(s: Any) -> np.ndarray:
        return np.zeros([1 if n is None else n for n in s.shape], s.dtype)

    return jax.tree.map(leaf, features)
