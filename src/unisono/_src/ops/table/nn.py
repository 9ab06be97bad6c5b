"""Neural networks: activations, losses and normalizations."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_NAME = "name: str | None = None"
_FEATURES = f"features: TensorLike, {_NAME}"


def _activation(name: str, summary: str, fn: str, allowed: str, *also: str) -> Name:
    """Returns the row of a function of single elements."""
    call = f'elementwise.apply_unary("{name}", {fn}, features, kinds.{allowed})'
    return Name(f"nn.{name}", summary, _FEATURES, call, also=also)


ROWS = (
    _activation("relu", "Returns the elements, zero for negative ones.",
                "activations.relu", "REAL"),
    _activation("relu6", "Returns the elements, from 0 to 6.", "activations.relu6",
                "REAL"),
    _activation("elu", "Returns x, or exp(x) - 1 for negative x.", "jax.nn.elu",
                "FLOAT"),
    _activation("selu", "Returns the scaled exponential linear unit.", "jax.nn.selu",
                "FLOAT"),
    _activation("softplus", "Returns log(1 + exp(x)).", "jax.nn.softplus", "FLOAT",
                "math.softplus"),
    _activation("softsign", "Returns `x / (1 + |x|)`.", "jax.nn.soft_sign", "FLOAT",
                "math.softsign"),
    Name("nn.leaky_relu", "Returns the elements, negative ones times `alpha`.",
         f"features: TensorLike, alpha: float = 0.2, {_NAME}",
         "activations.leaky_relu(features, alpha)"),
    Name("nn.crelu", "Returns the positive parts of x and of -x, side by side.",
         f"features: TensorLike, axis: int = -1, {_NAME}",
         "activations.crelu(features, axis)"),
    Name("nn.silu", "Returns x * sigmoid(beta * x).",
         "features: TensorLike, beta: float = 1.0",
         "activations.silu(features, beta)", also=("nn.swish",)),
    Name("nn.gelu", "Returns x times the share of a normal distribution below x.",
         f"features: TensorLike, approximate: bool = False, {_NAME}",
         "activations.gelu(features, approximate)"),
    Name("nn.softmax", "Returns probabilities along an axis.",
         f"logits: TensorLike, axis: int | None = None, {_NAME}",
         'activations.softmax("softmax", jax.nn.softmax, logits, axis)',
         also=("math.softmax",),
         example=">>> softmax([0.0, 0.0]).tolist()\n[0.5, 0.5]"),
    Name("nn.log_softmax", "Returns the logarithms of probabilities along an axis.",
         f"logits: TensorLike, axis: int | None = None, {_NAME}",
         'activations.softmax("log_softmax", jax.nn.log_softmax, logits, axis)',
         also=("math.log_softmax",)),
    Name("nn.l2_normalize", "Returns arrays divided by their norm over axes.",
         "x: TensorLike, axis: Sizes | None = None, epsilon: float = 1e-12, "
         f"{_NAME}, dim: Sizes | None = None",
         "activations.l2_normalize(x, axis, epsilon, dim)",
         also=("math.l2_normalize", "linalg.l2_normalize")),
    Name("nn.zero_fraction", "Returns the share of zeros among the elements.",
         f"value: TensorLike, {_NAME}", "activations.zero_fraction(value)",
         also=("math.zero_fraction",)),
    Name("nn.l2_loss", "Returns half of the sum of the squares.",
         f"t: TensorLike, {_NAME}", "activations.l2_loss(t)"),
    Name("nn.bias_add", "Returns an array plus one number for each channel.",
         "value: TensorLike, bias: TensorLike, data_format: str | None = None, "
         f"{_NAME}",
         "activations.bias_add(value, bias, data_format)"),
    Name("nn.moments", "Returns mean and variance over axes.",
         "x: TensorLike, axes: Sizes | None, shift: TensorLike | None = None, "
         f"keepdims: bool = False, {_NAME} -> tuple[jax.Array, jax.Array]",
         "activations.moments(x, axes, shift, keepdims)"),
    Name("nn.batch_normalization", "Returns a normalized, scaled, shifted array.",
         "x: TensorLike, mean: TensorLike, variance: TensorLike, "
         "offset: TensorLike | None, scale: TensorLike | None, "
         f"variance_epsilon: float, {_NAME}",
         "activations.batch_normalization(x, mean, variance, offset, scale, "
         "variance_epsilon)"),
    Name("nn.dropout", "Returns an array with a share of elements set to zero.",
         "x: TensorLike, rate: float | TensorLike, noise_shape: Sizes | None = None, "
         f"seed: int | None = None, {_NAME}",
         "dropouts.dropout(x, rate, noise_shape, seed)",
         difference="It draws other numbers than TensorFlow, others on each replica."),
    Name("nn.embedding_lookup", "Returns rows of a table by their numbers.",
         "params: TensorLike, ids: TensorLike, max_norm: float | None = None, "
         f"{_NAME}", "activations.embedding_lookup(params, ids, max_norm)",
         difference="In a compiled function a row that is not there reads as zeros, as "
         "on TensorFlow's accelerators."),
    Name("nn.softmax_cross_entropy_with_logits",
         "Returns the cross entropy between probabilities and a softmax.",
         f"labels: TensorLike, logits: TensorLike, axis: int = -1, {_NAME}",
         "activations.softmax_cross_entropy(labels, logits, axis)"),
    Name("nn.sparse_softmax_cross_entropy_with_logits",
         "Returns the cross entropy between class numbers and a softmax.",
         f"labels: TensorLike, logits: TensorLike, {_NAME}",
         "activations.sparse_softmax_cross_entropy(labels, logits)",
         difference="In a compiled function the number of no class gives NaN, as on "
         "TensorFlow's accelerators."),
    Name("nn.sigmoid_cross_entropy_with_logits",
         "Returns the cross entropy between probabilities and sigmoids.",
         "labels: TensorLike | None = None, logits: TensorLike | None = None, "
         f"{_NAME}", "activations.sigmoid_cross_entropy(labels, logits)"),
    Name("nn.weighted_cross_entropy_with_logits",
         "Returns the cross entropy; positive labels count with a weight.",
         f"labels: TensorLike, logits: TensorLike, pos_weight: TensorLike, {_NAME}",
         "activations.weighted_cross_entropy(labels, logits, pos_weight)"),
    Name("nn.log_poisson_loss", "Returns the Poisson loss of counts for log rates.",
         "targets: TensorLike, log_input: TensorLike, "
         f"compute_full_loss: bool = False, {_NAME}",
         "activations.log_poisson_loss(targets, log_input, compute_full_loss)"),
    Name("nn.local_response_normalization",
         "Returns images divided by a power of the squares of nearby channels.",
         "input: TensorLike, depth_radius: int = 5, bias: float = 1, "
         f"alpha: float = 1, beta: float = 0.5, {_NAME}",
         "activations.local_response_normalization(input, depth_radius, bias, alpha, "
         "beta)", also=("nn.lrn",)),
)  # fmt: skip
