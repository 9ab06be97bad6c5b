import pytest
import typer.testing

from unisono._src.cli import main

_TRAIN = """
import jax.numpy as jnp, numpy as np, unisono as tf
strategy = tf.distribute.MirroredStrategy(["CPU:0"])
with strategy.scope():
    w = tf.Variable(np.random.rand(3).astype("f"), name="w",
                    aggregation=tf.VariableAggregation.MEAN)
checkpoint = tf.train.Checkpoint(w=w)
batches = np.random.rand(4, 6, 3).astype("f")

@tf.function
def step(x):
    def replica(x):
        w.assign_add(jnp.sum(x, 0))
    strategy.run(replica, args=(x,))
"""
_LOOP = """
try:
    for batch in strategy.experimental_distribute_dataset(list(batches)):
        step(batch)
        checkpoint.save({0!r})
finally:
    open({1!r}, "a").write("seen ")
"""


def run(*arguments):
    result = typer.testing.CliRunner().invoke(
        main.app, ["parity", *map(str, arguments)]
    )
    return result.exit_code, result.output


def write(tmp_path, text):
    path = tmp_path / "train.py"
    path.write_text(text)
    return path


@pytest.mark.needs_devices(2)
def test_a_difference_of_a_script_has_the_status_1_and_its_cause(tmp_path):
    saved, left = tmp_path / "saved", tmp_path / "left"
    script = write(tmp_path, _TRAIN + _LOOP.format(str(saved), str(left)))
    status, output = run(script, "--replicas", "1,2", "--steps", "2")
    assert status == 1, output
    # The mean of two sums is half of the sum.
    assert "variable w differs" in output and "cause:    over-n" in output
    assert f"{script}:5" in output
    assert "seen seen" in left.read_text()
    assert not list(tmp_path.glob("saved*"))


@pytest.mark.parametrize(
    "text, said",
    [
        ("print(1)", "makes no MirroredStrategy"),
        (_TRAIN, "without a call of a compiled function"),
    ],
)
def test_a_script_without_steps_to_compare_has_the_status_2(tmp_path, text, said):
    status, output = run(write(tmp_path, text), "--replicas", "1,2")
    assert status == 2 and said in output


def test_bad_arguments_have_the_status_2(tmp_path):
    assert run(tmp_path / "none.py")[0] == 2
    script = write(tmp_path, "")
    for given in ("1", "8,x", "0,2"):
        status, output = run(script, "--replicas", given)
        assert status == 2 and "1,8" in output


@pytest.mark.needs_devices(2)
def test_a_script_whose_batch_grows_with_the_replicas_has_the_status_2(tmp_path):
    loop = """
for batch in strategy.experimental_distribute_dataset(
    [x[: 2 * strategy.num_replicas_in_sync] for x in batches]
):
    step(batch)
"""
    script = write(tmp_path, _TRAIN + loop)
    status, output = run(script, "--replicas", "1,2", "--steps", "1")
    assert status == 2 and "rows [[4]], not [[2]]" in output
