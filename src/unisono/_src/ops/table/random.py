"""Names of random numbers, which are written by hand."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_DRAWS = "unisono._src.ops.random_draws"
_STATELESS = "unisono._src.ops.stateless_draws"
_OWN = "Only uniform, normal and truncated normal numbers are TensorFlow's own."
_SEEDS = "Compiled numbers are TensorFlow's only with a seed."

ROWS = (
    Name(
        "random.uniform",
        "Returns uniform random numbers of a range, new ones at each call.",
        target=f"{_DRAWS}:uniform",
        difference=_SEEDS,
    ),
    Name(
        "random.normal",
        "Returns normal random numbers, new ones at each call.",
        target=f"{_DRAWS}:normal",
        difference=_SEEDS,
    ),
    Name(
        "random.truncated_normal",
        "Returns numbers of a normal distribution, within two standard deviations.",
        target=f"{_DRAWS}:truncated_normal",
        difference=_SEEDS,
    ),
    Name(
        "random.shuffle",
        "Returns the rows of an array in random order.",
        target=f"{_DRAWS}:shuffle",
        difference=_OWN,
    ),
    Name(
        "random.categorical",
        "Returns classes, drawn by their logits for each row.",
        target=f"{_DRAWS}:categorical",
        difference=_OWN,
    ),
    Name(
        "random.gamma",
        "Returns numbers of gamma distributions, `shape` of them for each parameter.",
        target=f"{_DRAWS}:gamma",
        difference=_OWN,
    ),
    Name(
        "random.poisson",
        "Returns numbers of Poisson distributions, `shape` of them for each rate.",
        target=f"{_DRAWS}:poisson",
        difference=_OWN,
    ),
    Name(
        "random.stateless_uniform",
        "Returns uniform random numbers of a range, which follow from a seed.",
        target=f"{_STATELESS}:stateless_uniform",
    ),
    Name(
        "random.stateless_normal",
        "Returns numbers of a normal distribution that follow from a seed.",
        target=f"{_STATELESS}:stateless_normal",
    ),
    Name(
        "random.stateless_truncated_normal",
        "Returns numbers within two standard deviations that follow from a seed.",
        target=f"{_STATELESS}:stateless_truncated_normal",
    ),
    Name(
        "random.stateless_categorical",
        "Returns classes, drawn by their logits for each row, that follow from a seed.",
        target=f"{_STATELESS}:stateless_categorical",
        difference=_OWN,
    ),
    Name(
        "random.stateless_gamma",
        "Returns numbers of gamma distributions that follow from a seed.",
        target=f"{_STATELESS}:stateless_gamma",
        difference=_OWN,
    ),
    Name(
        "random.stateless_poisson",
        "Returns numbers of Poisson distributions that follow from a seed.",
        target=f"{_STATELESS}:stateless_poisson",
        difference=_OWN,
    ),
    Name(
        "random.experimental.stateless_shuffle",
        "Returns the rows of an array in an order that follows from a seed.",
        target=f"{_STATELESS}:stateless_shuffle",
        difference=_OWN,
    ),
    Name(
        "random.split",
        "Returns several seeds that follow from one, as the rows of a matrix.",
        target=f"{_STATELESS}:split",
        also=("random.experimental.stateless_split",),
    ),
    Name(
        "random.fold_in",
        "Returns the seed that follows from a seed and a number, such as a step's.",
        target=f"{_STATELESS}:fold_in",
        also=("random.experimental.stateless_fold_in",),
    ),
    Name(
        "random.set_seed",
        "Sets the global seed, from which all random numbers of the program follow.",
        target="unisono._src.ops.random_state:set_seed",
    ),
)
