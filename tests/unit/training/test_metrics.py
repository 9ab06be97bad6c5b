"""Metrics: local to a replica when they grow, over all replicas when they are read."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import (
    EXECUTIONS,
    central,
    copies,
    execute,
    kind,
    mirrored,
    number,
    one_device,
    per_replica,
    plain,
)

TRUE = np.asarray([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0], np.float32)
PREDICTED = np.asarray([0.1, 0.9, 0.2, 0.4, 0.6, 0.7, 1.0], np.float32)


def cut(strategy, array):
    """`array` in consecutive parts, the last ones short or empty."""
    n = strategy.num_replicas_in_sync
    size = -(-len(array) // n)
    parts = [array[i * size : (i + 1) * size] for i in range(n)]
    return per_replica(strategy, *parts) if n > 1 else jnp.asarray(array)


@pytest.mark.feature("V05")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_a_mean_over_uneven_batches_is_exact_on_any_number_of_replicas(how, n):
    s = mirrored(n)
    with s.scope():
        mean, total = unisono.metrics.Mean(), unisono.metrics.Sum()

    def step(x):
        mean.update_state(x)
        total.update_state(x)

    values = np.arange(7, dtype=np.float32)
    for batch in (values[:4], values[4:]):
        execute(how, s, step, args=(cut(s, batch),))
    # A GPU divides with an error in the last digit.
    exact = pytest.approx([3.0, 21.0], rel=1e-7)
    assert plain([mean.result(), total.result()]) == exact
    assert len(copies(mean.total)) == n
    mean.reset_state()
    assert plain([mean.result(), total.result()]) == [0.0, 21.0]
    execute(how, s, step, args=(cut(s, values[:4]),))
    assert plain([mean.result(), total.result()]) == [1.5, 27.0]


@pytest.mark.feature("V05")
def test_the_state_is_a_sync_on_read_sum():
    with mirrored(2).scope():
        mean = unisono.metrics.Mean(name="loss")
    assert [kind(v) for v in mean.variables] == ["SyncOnReadVariable"] * 2
    assert {v.aggregation.name for v in mean.variables} == {"SUM"}
    assert [v.name for v in mean.variables] == ["loss/total:0", "loss/count:0"]
    assert not any(v.trainable for v in mean.variables)
    mirrored(2).run(lambda: mean.update_state(number()))
    assert [copies(v) for v in mean.variables] == [[1.0, 2.0], [1.0, 1.0]]
    assert plain(mean.result()) == 1.5


@pytest.mark.feature("V05")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("make", [lambda: mirrored(2), lambda: central(2), one_device])
def test_metrics_of_labels_and_predictions_are_those_of_the_whole_batch(make, how):
    s = make()
    wanted = {
        "MeanSquaredError": np.mean((TRUE - PREDICTED) ** 2),
        "MeanAbsoluteError": np.mean(np.abs(TRUE - PREDICTED)),
        "RootMeanSquaredError": np.sqrt(np.mean((TRUE - PREDICTED) ** 2)),
        "Accuracy": 1 / 7,
    }
    with s.scope():
        made = {name: getattr(unisono.metrics, name)() for name in wanted}

    def step(y, p):
        for metric in made.values():
            metric.update_state(y, p)

    execute(how, s, step, args=(cut(s, TRUE), cut(s, PREDICTED)))
    found = {name: float(metric.result()) for name, metric in made.items()}
    assert found == pytest.approx(wanted, rel=1e-6)


def test_the_accuracies_of_classifiers():
    scores = jnp.asarray([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    labels = jnp.asarray([1, 0, 0, 0])
    sparse = unisono.metrics.SparseCategoricalAccuracy()
    sparse.update_state(labels, scores)
    column = unisono.metrics.SparseCategoricalAccuracy()
    column.update_state(labels[:, None], scores)
    one_hot = unisono.metrics.CategoricalAccuracy()
    one_hot.update_state(jnp.eye(2)[labels], scores)
    assert plain([m.result() for m in (sparse, column, one_hot)]) == [0.75] * 3
    binary = unisono.metrics.BinaryAccuracy()
    binary.update_state(TRUE[:, None], PREDICTED[:, None])
    strict = unisono.metrics.BinaryAccuracy(threshold=0.95)
    strict.update_state(TRUE[:, None], PREDICTED[:, None])
    assert plain([binary.result(), strict.result()]) == pytest.approx([5 / 7, 4 / 7])


def test_weights_scale_values_and_their_count():
    mean = unisono.metrics.Mean()
    mean.update_state([1.0, 2.0, 6.0], sample_weight=[1, 1, 0])
    assert plain(mean.result()) == 1.5
    mean.update_state([[4.0, 4.0]], sample_weight=[0.5])
    assert plain(mean.result()) == pytest.approx(7.0 / 3.0)
    total = unisono.metrics.Sum()
    total.update_state([1.0, 2.0, 6.0], sample_weight=2.0)
    assert plain(total.result()) == 18.0
    error = unisono.metrics.MeanSquaredError()
    error.update_state([0.0, 0.0], [1.0, 3.0], sample_weight=[3, 1])
    assert plain(error.result()) == 3.0
    with pytest.raises(ValueError, match="sample_weight"):
        mean.update_state([1.0], sample_weight=[[1.0]])


def test_a_metric_is_zero_before_its_first_value():
    for name in ("Mean", "Sum", "Accuracy", "RootMeanSquaredError"):
        assert plain(getattr(unisono.metrics, name)().result()) == 0.0


def test_calling_a_metric_adds_and_reads():
    mean = unisono.metrics.Mean()
    assert plain([mean(2.0), mean(4.0)]) == [2.0, 3.0]
    mean.reset_states()
    assert plain(mean.result()) == 0.0
    assert repr(mean) == "<Mean name=mean>"


def test_an_own_function_of_labels_and_predictions_is_averaged():
    metric = unisono.metrics.MeanMetricWrapper(lambda y, p: jnp.abs(y - p) < 0.5)
    metric.update_state([1.0, 2.0], [1.2, 3.0])
    assert plain(metric.result()) == 0.5


@pytest.mark.feature("V05")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_an_own_metric_adds_weights_of_its_own(how):
    class Largest(unisono.metrics.Metric):
        def __init__(self):
            super().__init__("largest")
            self.seen = self.add_weight("seen", shape=(3,))

        def update_state(self, x):
            self.seen.assign_add(jnp.eye(3)[x])

        def result(self):
            return jnp.max(jnp.where(self.seen.value() > 0, jnp.arange(3), -1))

    s = mirrored(2)
    with s.scope():
        metric = Largest()
    execute(how, s, metric.update_state, args=(per_replica(s, 0, 2),))
    assert plain(metric.result()) == 2
    with pytest.raises(NotImplementedError):
        unisono.metrics.Metric().result()  # type: ignore[abstract]
    with pytest.raises(NotImplementedError):
        unisono.metrics.Metric().update_state()  # type: ignore[abstract]
