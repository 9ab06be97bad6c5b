"""Updates of NNX optimizers that parameter servers compute, one after the other."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import unisono
from tests.unit.servers import clusters


@pytest.mark.feature("T06")
def test_a_model_trains_in_a_loop_of_its_own_and_no_update_is_lost():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    with clusters.cluster(carrier=clusters.Together().carrier) as pair:
        strategy, coordinator = pair
        with strategy.scope():
            model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
            tx = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, 0.9))
            optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        places = {row.placement for row in strategy.describe(optimizer).rows}
        assert places == {"on server 0", "on server 1", "on server 0, 1"}

        @unisono.function
        def train(x):
            def replica_fn(x):
                # The gradient is the same wherever the parameters are.
                loss_fn = nnx.value_and_grad(lambda m: jnp.sum(m(x) * 2.0))
                loss, gradients = loss_fn(model)
                optimizer.update(model, gradients)
                return loss

            return strategy.run(replica_fn, args=(x,))

        first = np.asarray(model.kernel.get_value())
        losses = [coordinator.schedule(train, args=(x,)) for _ in range(4)]
        coordinator.join()
        assert losses[3].fetch() < losses[0].fetch()
        assert int(optimizer.step.get_value()) == 4
        found = [np.asarray(v.get_value()) for v in (model.kernel, model.bias)]
    slopes = [np.repeat(2 * x.sum(0)[:, None], 2, axis=1), np.full(2, 8.0)]
    norm = np.sqrt(sum((g**2).sum() for g in slopes))
    # Momenta of 1, 1.9, 2.71 and 3.439 times the gradient.
    for new, old, slope in zip(found, (first, 0.0), slopes, strict=True):
        wanted = old - 0.1 * 9.049 * slope * (0.5 / norm)
        np.testing.assert_allclose(new, wanted, rtol=1e-5)


@pytest.mark.parametrize("wrap", [unisono.function, lambda fn: fn])
def test_state_that_is_assigned_where_replicas_meet_in_a_gradient_is_kept(wrap):
    class Model(nnx.Module):
        def __init__(self):
            self.scale = nnx.Param(jnp.ones(()))
            self.total = nnx.BatchStat(jnp.zeros(()))

        def __call__(self, x):
            context = unisono.distribute.get_replica_context()
            self.total[...] = context.all_reduce("SUM", jnp.sum(x))
            return self.scale[...] * x / self.total[...]

    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = Model()

    @wrap
    def step(batch):
        def replica_step(x):
            return nnx.grad(lambda model: jnp.sum(model(x)))(model).scale[...]

        return strategy.reduce("SUM", strategy.run(replica_step, (batch,)), axis=None)

    x = np.arange(5, dtype="float32")
    data = unisono.data.Dataset.from_tensor_slices(x).batch(5)
    (gradient,) = map(step, strategy.experimental_distribute_dataset(data))
    assert float(gradient) == pytest.approx(1.0)
    assert float(model.total[...]) == 10.0
