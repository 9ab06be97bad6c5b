"""Measures steps on one GPU: unisono against hand-written JAX, and the cost of input.

usage: python benchmarks/gpu.py [--device GPU:0] [--small]

The two programs of a row take turns in one process. They are hand-written JAX and
unisono; unisono with mirrored and with sharded state; or unisono on one batch that
stays on the device and unisono with a dataset.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import unisono as uni

VOCABULARY, WIDTH, HEADS, LAYERS = 50304, 768, 12, 12


def initial(layers: int, width: int, vocabulary: int, length: int) -> dict[str, Any]:
    """Returns the parameters of a model of GPT-2's shape, as NumPy arrays."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape, np.float32) * 0.02).astype(np.float32)

    params: dict[str, Any] = {
        "tokens": normal(vocabulary, width),
        "positions": normal(length, width),
        "norm": np.ones(width, np.float32),
    }
    for i in range(layers):
        params[f"layer{i:02d}"] = {
            "norm1": np.ones(width, np.float32),
            "qkv": normal(width, 3 * width),
            "out": normal(width, width),
            "norm2": np.ones(width, np.float32),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
        }
    return params


def _norm(x: Any, scale: Any) -> Any:
    x32 = x.astype(jnp.float32)
    centred = x32 - x32.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return (scaled * scale).astype(x.dtype)


def _block(x: Any, layer: dict[str, Any]) -> Any:
    batch, length, width = x.shape
    low = {k: v.astype(jnp.bfloat16) for k, v in layer.items()}
    qkv = (_norm(x, low["norm1"]) @ low["qkv"]).reshape(batch, length, 3, HEADS, -1)
    kernel = "cudnn" if jax.default_backend() == "gpu" else None
    mixed = jax.nn.dot_product_attention(
        *(qkv[:, :, i] for i in range(3)), is_causal=True, implementation=kernel
    )
    x = x + mixed.reshape(batch, length, width) @ low["out"]
    hidden = jax.nn.gelu(_norm(x, low["norm2"]) @ low["up"])
    return x + hidden @ low["down"]


def loss(params: dict[str, Any], tokens: Any) -> Any:
    """Returns the mean next-token cross-entropy, computed in bfloat16."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    table = params["tokens"].astype(jnp.bfloat16)
    x = table[inputs] + params["positions"][: inputs.shape[1]].astype(jnp.bfloat16)
    for name in sorted(k for k in params if k.startswith("layer")):
        x = _block(x, params[name])
    logits = (_norm(x, params["norm"]) @ table.T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def _gpt2_data(batch: int, length: int, layers: int) -> tuple[Any, np.ndarray, Any]:
    """Returns the first parameters of GPT-2 small, a batch, and the optimizer."""
    start = initial(layers, WIDTH, VOCABULARY, length)
    tokens = np.random.default_rng(1).integers(0, 50257, (batch, length + 1))
    return start, tokens.astype(np.int32), optax.adam(1e-4)


def gpt2_by_hand(batch: int, length: int, layers: int) -> Any:
    """Returns a training step of GPT-2 small with Adam in JAX."""
    start, tokens, tx = _gpt2_data(batch, length, layers)

    def step(state: Any, tokens: Any) -> Any:
        params, slots = state
        value, grads = jax.value_and_grad(loss)(params, tokens)
        changes, slots = tx.update(grads, slots, params)
        return (optax.apply_updates(params, changes), slots), value

    raw_step = jax.jit(step, donate_argnums=0)
    params = jax.tree.map(jnp.asarray, start)
    held = (params, tx.init(params))
    raw_tokens = jnp.asarray(tokens)

    def raw() -> Any:
        nonlocal held
        held, value = raw_step(held, raw_tokens)
        return value

    return raw


def gpt2(device: str, batch: int, length: int, layers: int, **options: Any) -> Any:
    """Returns the same step in unisono; `options` are those of the strategy."""
    start, tokens, tx = _gpt2_data(batch, length, layers)
    strategy = uni.distribute.MirroredStrategy([device], **options)
    flat, treedef = jax.tree.flatten(start)
    with strategy.scope():
        made = [uni.Variable(x) for x in flat]
        optimizer = uni.optimizers.Optimizer(tx, made)

    @uni.function
    def train(tokens: Any) -> Any:
        def replica(tokens: Any) -> Any:
            def loss_fn() -> Any:
                return loss(treedef.unflatten([v.value() for v in made]), tokens)

            value, grads = uni.value_and_grad(loss_fn, made)()
            optimizer.apply_gradients(zip(grads, made, strict=True))
            return value

        return strategy.reduce("SUM", strategy.run(replica, args=(tokens,)), axis=None)

    ours_tokens = jnp.asarray(tokens)
    return lambda: train(ours_tokens)


def one_variable(device: str) -> tuple[Any, Any]:
    """Returns a step that adds a number to a variable: in JAX, and in unisono."""
    raw_step = jax.jit(lambda v, x: (v + x, (v + x) * 1.0), donate_argnums=0)
    held, x = jnp.zeros(()), jnp.ones(())

    def raw() -> Any:
        nonlocal held
        held, out = raw_step(held, x)
        return out

    strategy = uni.distribute.MirroredStrategy([device])
    with strategy.scope():
        v = uni.Variable(0.0, aggregation=uni.VariableAggregation.SUM)

    @uni.function
    def step(x: Any) -> Any:
        strategy.run(lambda x: v.assign_add(x), args=(x,))
        return v.value() * 1.0

    return raw, lambda: step(x)


def fed(device: str, batch: int, side: int) -> tuple[Any, Any]:
    """Returns a step on images: with one resident batch, and with a dataset.

    The model is a small convolutional network.
    """
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (8 * batch, side, side, 3), np.uint8)
    labels = rng.integers(0, 10, 8 * batch).astype(np.int32)
    strategy = uni.distribute.MirroredStrategy([device])
    with strategy.scope():
        made = [
            uni.Variable(rng.normal(size=(7, 7, 3, 64)).astype("f4") / 12),
            uni.Variable(rng.normal(size=(3, 3, 64, 128)).astype("f4") / 24),
            uni.Variable(rng.normal(size=(3, 3, 128, 256)).astype("f4") / 34),
            uni.Variable(rng.normal(size=(256, 10)).astype("f4") / 16),
        ]
        optimizer = uni.optimizers.Optimizer(optax.sgd(1e-3), made)

    def convolved(x: Any, kernel: Any, stride: int) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        kernel = kernel.astype(jnp.bfloat16)
        out = jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), "SAME", dimension_numbers=dims
        )
        return jax.nn.relu(out)

    @uni.function
    def train(images: Any, labels: Any) -> Any:
        def replica(images: Any, labels: Any) -> Any:
            def loss_fn() -> Any:
                first, second, third, last = (v.value() for v in made)
                x = images.astype(jnp.bfloat16) / 255
                x = convolved(convolved(x, first, 2), second, 1)
                x = convolved(x, third, 2)
                logits = x.mean((1, 2)).astype(jnp.float32) @ last
                return optax.softmax_cross_entropy_with_integer_labels(
                    logits, labels
                ).mean()

            value, grads = uni.value_and_grad(loss_fn, made)()
            optimizer.apply_gradients(zip(grads, made, strict=True))
            return value

        losses = strategy.run(replica, args=(images, labels))
        return strategy.reduce("SUM", losses, axis=None)

    dataset = uni.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(8 * batch, seed=1).repeat().batch(batch)
    batches = iter(strategy.experimental_distribute_dataset(dataset))
    resident = next(batches)
    return lambda: train(*resident), lambda: train(*next(batches))


def compare(name: str, pair: tuple[Any, Any], count: int, rounds: int) -> None:
    """Prints the median time of a step of each program and their ratio."""
    begin = time.perf_counter()
    first: list[float] = []
    for step in pair:
        value = step()
        value.block_until_ready()
        first.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    times: list[list[float]] = [[], []]
    outputs: list[Any] = [None, None]
    for i in range(rounds):
        # The order alternates, so that neither program always runs on a warm cache.
        for k in (0, 1) if i % 2 else (1, 0):
            begin = time.perf_counter()
            for _ in range(count):
                outputs[k] = pair[k]()
            outputs[k].block_until_ready()
            times[k].append((time.perf_counter() - begin) / count)
    raw, ours = (statistics.median(t) * 1e6 for t in times)
    ratio = statistics.median(o / r for r, o in zip(times[0], times[1], strict=True))
    print(
        f"{name}: first {raw:,.1f} µs, second {ours:,.1f} µs, ratio {ratio:.3f}, best "
        f"{min(times[1]) / min(times[0]):.3f}; first call {first[0]:.2f} s and "
        f"{first[1]:.2f} s; last values {float(outputs[0]):.6f} and "
        f"{float(outputs[1]):.6f}"
    )


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="GPU:0")
    parser.add_argument("--small", action="store_true", help="a model for CPU")
    arguments = parser.parse_args()
    print("jax", jax.__version__, jax.devices()[0].device_kind)
    tiny: Callable[[], Any] = lambda: one_variable(arguments.device)  # noqa: E731
    compare("one variable", tiny(), 2000, 15)
    sizes = (1, 64, 1) if arguments.small else (16, 1024, LAYERS)
    count, rounds = (2, 3) if arguments.small else (20, 9)
    ours = gpt2(arguments.device, *sizes)
    name = "GPT-2 small" if not arguments.small else "GPT-2 shaped, 1 layer"
    compare(f"{name} step", (gpt2_by_hand(*sizes), ours), count, rounds)
    parts = gpt2(arguments.device, *sizes, state="sharded")
    compare(f"{name}, mirrored and sharded", (ours, parts), count, rounds)
    if arguments.small:
        compare("images, resident and fed", fed(arguments.device, 8, 32), 4, 3)
    else:
        compare("images, resident and fed", fed(arguments.device, 256, 224), 20, 9)
        compare("the same, 64 images", fed(arguments.device, 64, 224), 40, 9)


if __name__ == "__main__":
    main()
