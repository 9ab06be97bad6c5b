"""The state of Flax NNX objects for checkpoints and exports: variables, by path."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from unisono._src.foundation import library_hooks
from unisono._src.integrations import kept_variables
from unisono._src.integrations.flax import variables
from unisono._src.saving.checkpoint import restore_values
from unisono._src.state import reading
from unisono._src.state.variables import Variable


@final
class _SavedFlaxVariable(library_hooks.LibraryVariable):
    """An NNX variable as a checkpoint sees it, whether made in a scope or not."""

    @property
    def strategy_variable(self) -> Variable | None:
        return getattr(self.owner, "_unisono_variable", None)

    @property
    def name(self) -> str:
        return type(self.owner).__name__

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.owner.get_raw_value().shape)

    @property
    def dtype(self) -> np.dtype:
        found: np.dtype = self.owner.get_raw_value().dtype
        return found

    def read(self, is_detached: bool) -> jax.Array:
        kept = self.strategy_variable
        if kept is not None:
            variables.check_not_split(self.owner)
            return reading.read(kept)
        value = self.owner.get_raw_value()
        # Outside a strategy the program's own `nnx.jit` may donate the array.
        return jnp.copy(value) if is_detached else value

    def assign(self, value: ArrayLike) -> None:
        kept = self.strategy_variable
        if kept is not None:
            variables.check_not_split(self.owner)
            restore_values.assign(kept, value)
            return
        old = self.owner.get_raw_value()
        # Random keys are restored as keys; they are no numbers to be converted.
        if not jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            value = jax.device_put(jnp.asarray(value, old.dtype), old.sharding)
        self.owner.set_raw_value(value)

    def lend(self) -> contextlib.AbstractContextManager[Variable]:
        return variables.lend(self.owner)


def _hold(variable: nnx.Variable[Any]) -> _SavedFlaxVariable | None:
    """Return the object that stands for a variable, or None if it is no state."""
    if isinstance(variable, variables.TRANSIENT):
        return None
    value = getattr(variable, "_unisono_variable", None)
    if value is None and not isinstance(variable.get_raw_value(), jax.Array):
        return None
    return kept_variables.hold(_SavedFlaxVariable, variable)


def _variable_tree(obj: object) -> dict[str, Any]:
    """Return the variables of an object in nested dicts, by the names of their path."""
    found: dict[str, Any] = {}
    for path, value in nnx.iter_graph(obj):
        held = _hold(value) if isinstance(value, nnx.Variable) else None
        if held is None:
            continue
        at = found
        for name in path[:-1]:
            at = at.setdefault(str(name), {})
        at[str(path[-1])] = held
    return found


def _make_branches(obj: object, tree: dict[str, Any]) -> dict[str, Any]:
    return {
        name: library_hooks.Branch(obj, functools.partial(_make_branches, obj, value))
        if isinstance(value, dict)
        else value
        for name, value in tree.items()
    }


@final
class _FlaxStateFinder(library_hooks.StateFinder):
    """Finds the state of modules, optimizers, metrics, random streams and variables."""

    def __getitem__(
        self, obj: object
    ) -> library_hooks.LibraryVariable | dict[str, Any] | None:
        if isinstance(obj, nnx.Variable):
            return _hold(obj)
        if not isinstance(obj, nnx.Pytree | nnx.State):
            return None
        return _make_branches(obj, _variable_tree(obj))

    def make_forward(self, obj: object) -> None:
        """Return None, or raise for a module: NNX does not know its inputs."""
        if not isinstance(obj, nnx.Module):
            return None
        raise ValueError(
            f"Flax does not say what the inputs of a {type(obj).__name__} are. Give "
            "the function to export: saved_model.save(model, path, "
            "signatures=unisono.function(lambda x: model(x), "
            "input_signature=[unisono.TensorSpec([None, 3], 'float32')]))."
        )


STATE_FINDER = _FlaxStateFinder()
