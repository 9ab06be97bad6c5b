"""Flax NNX objects in checkpoints, under strategies."""

import numpy as np
import pytest

import unisono as uni
from tests.integration.programs import difference, mirrored, scope

nnx = pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")


class Net(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.more = nnx.List([nnx.Linear(4, 4, rngs=rngs)])
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, x):
        return self.drop(self.norm(self.more[0](self.first(x))))


class Program:
    """Everything that NNX has state in, and a step that changes all of it."""

    def __init__(self, strategy, seed):
        self.strategy = strategy
        with scope(strategy):
            self.rngs = nnx.Rngs(seed, dropout=seed + 1)
            self.net = Net(self.rngs)
            self.optimizer = nnx.Optimizer(self.net, optax.adam(0.1), wrt=nnx.Param)
            self.metric = nnx.MultiMetric(loss=nnx.metrics.Average())
        self.checkpoint = uni.train.Checkpoint(
            net=self.net, optimizer=self.optimizer, metric=self.metric, rngs=self.rngs
        )

        self.step = self.one_step if strategy is None else uni.function(self.one_step)

    def one_step(self):
        x = np.arange(12, dtype="float32").reshape(4, 3) / 12

        def one():
            value, grads = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(
                self.net
            )
            self.optimizer.update(self.net, grads)
            self.metric.update(values=value)

        one() if self.strategy is None else self.strategy.run(one)

    def seen(self):
        state = nnx.state((self.net, self.optimizer))
        plain = nnx.to_pure_dict(nnx.filter_state(state, nnx.Not(nnx.RngKey)))
        return plain, self.metric.compute()["loss"]


def test_modules_optimizers_metrics_and_streams_go_on(tmp_path):
    first = Program(mirrored(2), 1)
    first.step()
    path = first.checkpoint.save(tmp_path / "c")
    first.step()
    second = Program(mirrored(2), 2)
    second.checkpoint.restore(path).assert_consumed()
    second.step()
    assert difference(second.seen(), first.seen()) < 1e-6
    assert float(second.rngs.dropout.count[...]) == float(first.rngs.dropout.count[...])


def test_keys_do_not_depend_on_the_strategy_and_show_the_path(tmp_path):
    keys = []
    for replicas in (None, 2):
        program = Program(mirrored(replicas), 1)
        path = program.checkpoint.write(tmp_path / f"{replicas}")
        keys.append(
            [k.partition("/.ATTR")[0] for k, _ in uni.train.list_variables(path)]
        )
        other = Program(mirrored(4 if replicas is None else None), 2)
        other.checkpoint.read(path).assert_consumed()
        kernels = [p.net.more[0].kernel[...] for p in (program, other)]
        assert difference(*map(np.asarray, kernels)) == 0.0
    assert keys[0] == keys[1]
    assert {
        "net/first/kernel", "net/more/0/bias", "net/norm/mean", "net/drop/rngs/count",
        "optimizer/opt_state/0/mu/more/0/kernel", "optimizer/step",
        "metric/loss/total", "rngs/default/key",
    } <= set(keys[0])  # fmt: skip
