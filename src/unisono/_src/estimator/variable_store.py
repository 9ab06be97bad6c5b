"""The variables of a model function, which is called again and again.

A model function makes its variables anew on every call, as it did in TensorFlow, where
each call had a graph of its own. The store gives it those of the first call.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, final

import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation
from unisono._src.foundation.public_names import publish
from unisono._src.state import creation
from unisono._src.state.variables import Variable

GLOBAL_STEP = "global_step"


@final
class Store:
    """Variables by name; names that a call uses twice are numbered.

    Attributes:
        variables: every variable that was made, by its key.
        is_awaited: says of a new variable's arguments whether its value will come from
            a checkpoint, so that none has to be computed.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.is_awaited: Callable[[dict[str, Any]], bool] = lambda _: False

    def make_global_step(self) -> Variable:
        """The variable that counts steps; made here, in the scope in force."""
        made = Variable(
            jnp.zeros((), jnp.int32),
            trainable=False,
            name=GLOBAL_STEP,
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self.variables[GLOBAL_STEP] = made
        return made

    @property
    def global_step(self) -> Variable:
        """The variable that counts steps."""
        return self.variables[GLOBAL_STEP]

    @property
    def trainable(self) -> list[Variable]:
        """Those that optimizers should update, in the order of their creation."""
        return [v for v in self.variables.values() if v.trainable]

    @contextlib.contextmanager
    def called(self) -> Iterator[Call]:
        """A block that is one call of the model function."""
        call = Call(self)
        with contextlib.ExitStack() as stack:
            if "keras" in sys.modules:
                # Its layers number themselves, through the life of a process.
                names = importlib.import_module("unisono._src.integrations.keras.names")
                stack.enter_context(names.fresh())
            stack.enter_context(creation.variable_creator_scope(call))
            yield call


@final
class Call:
    """One call of a model function; creates variables, or finds them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._used: set[str] = set()

    def __call__(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        """The variable of this name: the one of an earlier call, or a new one."""
        name = kwargs.get("name") or "Variable"
        if name == GLOBAL_STEP:
            return self.store.global_step
        key = self._key(name)
        known = self.store.variables.get(key)
        if known is None:
            if self.store.is_awaited(kwargs):
                kwargs["initial_value"] = _blank(kwargs["initial_value"])
            known = self.store.variables[key] = next_creator(**kwargs)
        else:
            _check_same(key, known, kwargs)
        return known

    def _key(self, name: str) -> str:
        numbered = (f"{name}_{i}" for i in itertools.count(1))
        key = next(k for k in itertools.chain([name], numbered) if k not in self._used)
        self._used.add(key)
        return key


def _blank(value: Any) -> Any:
    """Zeros like an initial value, which then is not computed in a program."""
    found = value() if callable(value) else value
    return jnp.zeros(jnp.shape(found), jnp.result_type(found))


def _check_same(key: str, known: Variable, wanted: dict[str, Any]) -> None:
    value = wanted.get("initial_value")
    shape = wanted.get("shape")
    if shape is None and value is not None and not callable(value):
        shape = np.shape(value)
    if shape is not None and tuple(shape) != known.shape:
        raise ValueError(
            f"The model function makes the variable '{key}' with shape {tuple(shape)}, "
            f"but in an earlier call it had shape {known.shape}. Variables are the "
            "same on every call and in every mode; give those that are not names of "
            "their own."
        )


def get_global_step(graph: object = None) -> Variable:
    """The variable that counts the steps of an `Estimator`, for its model function.

    The estimator counts; a model function reads it, for a schedule say.

    Args:
        graph: accepted; there are no graphs.

    Raises:
        RuntimeError: called outside a model function.
    """
    for creator in reversed(ambient.current().creators):
        if isinstance(creator, Call):
            return creator.store.global_step
    raise RuntimeError(
        "There is a global step inside the model_fn of an Estimator only. In a loop of "
        "your own count the steps in a variable, or read optimizer.iterations."
    )


publish("unisono.train", get_global_step)
