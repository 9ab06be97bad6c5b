"""The causes of differences: how each is recognised, and what to write instead."""

from __future__ import annotations

import dataclasses
from typing import final


@final
@dataclasses.dataclass(frozen=True)
class Cause:
    """A cause of a difference.

    Attributes:
        code: a short name, by which programs and tests recognize it.
        told: a sentence that says what happens.
        write: what to write instead.
    """

    code: str
    told: str
    write: str


_EVERY = (
    Cause(
        "times-n",
        "It is N times too large: every replica counts it as if it were alone.",
        "loss = jnp.sum(errors) / global_batch_size  # not the mean of the part",
    ),
    Cause(
        "over-n",
        "It is N times too small: it is divided by the number of replicas twice.",
        'strategy.reduce("SUM", losses, axis=None)  # of losses that are shares',
    ),
    Cause(
        "mean-of-means",
        "It is the mean of the replicas' means, whose parts are not of equal size.",
        "divide the sum by the count of all replicas: "
        'all_reduce("SUM", count), or the size of the global batch',
    ),
    Cause(
        "missing-reduction",
        "It is that of the first replica alone.",
        'strategy.reduce("SUM", values, axis=None)  # not local_results(values)[0]',
    ),
    Cause(
        "doubled-reduction",
        "It is summed over the replicas twice: each replica hands the sum on.",
        "optimizer.apply_gradients(zip(gradients, variables))  # it sums by itself",
    ),
    Cause(
        "regulariser-n-times",
        "A part that does not depend on the batch is counted by every replica.",
        "loss += unisono.nn.scale_regularization_loss(penalty)",
    ),
    Cause(
        "part-statistics",
        "It depends on statistics of a replica's part instead of the whole batch.",
        'mean = all_reduce("SUM", jnp.sum(x, 0)) / global_batch_size'
        "  # or BatchNormalization(synchronized=True)",
    ),
    Cause(
        "only-first-replica",
        "The variable has the value of the first replica: its aggregation is "
        "ONLY_FIRST_REPLICA.",
        "Variable(..., aggregation=VariableAggregation.MEAN)",
    ),
    Cause(
        "random-equal",
        "All replicas draw the same random numbers for different rows.",
        "key = jax.random.fold_in(key, replica_id), or a key of each example",
    ),
    Cause(
        "random-different",
        "The replicas draw other random numbers than one device does.",
        "draw by example (a key of each row), or compare without noise and dropout",
    ),
    Cause(
        "metric-not-weighted",
        "The metric counts every replica alike, whatever its number of rows.",
        "metric.update_state(values_of_the_rows)  # or sample_weight=number_of_rows",
    ),
    Cause(
        "clipped-per-replica",
        "Each replica clips its own gradient, before the sum.",
        "optax.chain(optax.clip_by_global_norm(c), ...)  # the optimizer clips the sum",
    ),
    Cause(
        "accumulation",
        "The variables are updated at other steps: the count of calls depends on the "
        "number of replicas.",
        "Optimizer(..., accumulate_steps=k)  # or count with ONLY_FIRST_REPLICA",
    ),
    Cause(
        "data-dropped",
        "Some rows of the batch reach no replica.",
        "for batch in strategy.experimental_distribute_dataset(dataset):",
    ),
    Cause(
        "data-repeated",
        "Some rows of the batch reach more than one replica.",
        "for batch in strategy.experimental_distribute_dataset(dataset):",
    ),
    Cause(
        "python-state",
        "The step depends on Python objects that change: two runs on one device, "
        "traced anew, differ.",
        "keep it in a unisono.Variable, or pass it to the step as an argument",
    ),
    Cause(
        "half-precision",
        "The values of the replicas are rounded to 16 bits before they are summed.",
        "gradients = [g.astype(jnp.float32) for g in gradients]  # before the sum",
    ),
    # Those of a program that was ported from TensorFlow.
    Cause(
        "initial-values",
        "A variable began with the value of another one, or of none.",
        "--map old/name=new/name  # for each variable that order has paired wrongly",
    ),
    Cause(
        "batch-statistics",
        "Statistics of a batch are those of other rows or another momentum: TensorFlow "
        "has those of each replica's part.",
        "model.compile(..., per_replica=True)  # or synchronized=True in TensorFlow",
    ),
    Cause(
        "inference-mode",
        "Moving statistics stay as they were: the layer runs as in inference.",
        "model(x, training=True)",
    ),
    Cause(
        "loss-reduction",
        "It is a constant multiple: the loss is reduced over rows or replicas "
        "differently.",
        "loss = tf.reduce_sum(errors) / global_batch_size  # as the original does",
    ),
    Cause(
        "optimizer-settings",
        "The gradients are the same, and the update is not: the optimizer has other "
        "settings.",
        "Adam(learning_rate, epsilon=..., weight_decay=...)  # all that matters",
    ),
    Cause(
        "dropout",
        "The step draws random numbers, which differ between TensorFlow and JAX.",
        "compare with Dropout(0) and without noise in both programs",
    ),
    Cause(
        "64-bit",
        "The original computes with 64 bits, and JAX with 32.",
        'jax.config.update("jax_enable_x64", True)  # before anything else',
    ),
    Cause(
        "data",
        "The program's own batches are not the recorded ones; with those it goes on.",
        "scale, cast and cut the data as the original does",
    ),
    Cause(
        "metric",
        "A metric is updated differently; what trains the model is the same.",
        "metric.update_state(y_true, y_pred, sample_weight)  # as the original does",
    ),
    Cause("unknown", "The cause is unknown.", ""),
)
CAUSES = {cause.code: cause for cause in _EVERY}
