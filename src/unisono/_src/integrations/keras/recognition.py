"""Makes Keras recognize what programs of unisono give it, inside scopes and outside.

Without a scope nothing of Keras is patched, but `fit` of a `unisono.data.Dataset`, or
of a model with steps for replicas, works there, too. So these functions are replaced
for good, as soon as a program makes the first dataset or metric, or enters the first
scope. Given nothing of unisono they do what they did.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras

from unisono._src.foundation import ambient
from unisono._src.integrations import attribute_patches
from unisono._src.integrations.keras import (
    adoption,
    common_statistics,
    exporting,
    failed_loops,
    inputs,
    internals,
    layer_statements,
    loss_scaling,
    replica_steps,
)
from unisono._src.integrations.keras.internals import KerasMetric, KerasModel
from unisono._src.training import metrics


def _wrap_compile(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `compile` that takes metrics of unisono, and warns of lost scopes.

    With ``per_replica=True`` the model trains on each replica's part of a batch.
    """

    @functools.wraps(original)
    def compile_model(
        self: KerasModel, *args: object, per_replica: bool = False, **kwargs: object
    ) -> None:
        given = [
            x
            for x in keras.tree.flatten((args, kwargs))
            if isinstance(x, metrics.Metric)
        ]
        if given:
            twins = {id(x): _make_twin(x) for x in given}
            args, kwargs = _replace((args, kwargs), twins)
        _warn_of_scope(self)
        original(self, *args, **kwargs)
        replica_steps.request(self, per_replica)

    return compile_model


def _replace(given: Any, twins: Mapping[int, object]) -> Any:
    """Return arguments of `compile` with some objects in them replaced."""
    if isinstance(given, dict):
        return {key: _replace(value, twins) for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        return type(given)([_replace(value, twins) for value in given])
    return twins.get(id(given), given)


def _make_twin(metric: metrics.Metric) -> KerasMetric:
    """Return the metric of Keras that computes the same as a metric of unisono.

    Keras computes with its own only. The program may go on reading the one that it
    gave, so that one's methods are those of the twin from now on.

    Raises:
        TypeError: Keras has no such metric.
    """
    if metric.keras_name is None:
        name = type(metric).__name__
        there = hasattr(keras.metrics, name)
        hint = f"keras.metrics.{name}" if there else "a metric of keras.metrics"
        raise TypeError(
            f"`compile` takes metrics of Keras, received unisono.metrics.{name} "
            f"({metric.name!r}), which is for loops of one's own. Write {hint} instead."
        )
    make = getattr(keras.metrics, metric.keras_name)
    twin = make(name=metric.name, dtype=metric.dtype, **metric.keras_arguments)
    vars(metric).update(
        result=twin.result,
        update_state=twin.update_state,
        reset_state=twin.reset_state,
    )
    return twin


def _warn_of_scope(model: KerasModel) -> None:
    """Warn if a model of no strategy is compiled in a scope."""
    strategy = ambient.current().strategy
    if strategy is None or adoption.STRATEGY in model.__dict__:
        return
    warnings.warn(
        f"The model {model.name!r} was made outside the scope of {strategy!r} and is "
        "compiled inside it: it will train on one device. Make it inside `with "
        "strategy.scope():`, or bring it in before with strategy.adopt(model).",
        stacklevel=3,
    )


@functools.cache
def install() -> None:
    """Replace the functions, when it is called first."""
    trainer, losses = internals.JAXTrainer, internals.loss
    makers: list[attribute_patches.Patch] = []
    for step in (
        replica_steps.train_step,
        replica_steps.test_step,
        replica_steps.predict_step,
    ):
        name = step.__name__
        maker = f"make_{name.removesuffix('_step')}_function"
        wrap_step = functools.partial(replica_steps.wrap_step, step=step)
        makers += [
            (trainer, name, wrap_step),
            (trainer, maker, functools.partial(replica_steps.wrap_maker, name)),
        ]
    attribute_patches.Patches(
        [
            (
                internals.data_adapters,
                "get_data_adapter",
                inputs.wrap_get_data_adapter,
            ),
            (internals.Trainer, "compile", _wrap_compile),
            (internals.normalization, "tf", inputs.TensorFlowNames),
            (internals.discretization, "tf", inputs.TensorFlowNames),
            (internals.DataLayer, "__call__", inputs.wrap_data_layer),
            (keras.Model, "export", exporting.wrap_export),
            *makers,
            (trainer, "_get_jax_state", replica_steps.wrap_get_state),
            (trainer, "_get_jax_state", failed_loops.wrap_get_state),
            *((trainer, name, failed_loops.wrap_loop) for name in failed_loops.LOOPS),
            (trainer, "_symbolic_build", replica_steps.wrap_build),
            (trainer, "_aggregate_additional_loss", loss_scaling.wrap_additional),
            (keras.layers.BatchNormalization, "__init__", common_statistics.wrap_init),
            (internals.nn, "moments", common_statistics.wrap_moments),
            (internals.backend, "compute_output_spec", layer_statements.wrap_spec),
            (
                internals.traceback_utils,
                "inject_argument_info_in_traceback",
                layer_statements.wrap_layer_call,
            ),
            (losses, "reduce_values", loss_scaling.wrap_reduce),
            (losses, "scale_loss_for_distribution", loss_scaling.wrap_scale),
            (losses, "unscale_loss_for_distribution", loss_scaling.wrap_unscale),
        ]
    ).__enter__()
