"""Keeps the variables of a model function from one call to the next.

A model function asks for new variables on every call, because in TensorFlow each call
had its own graph. Here it gets the variables of its first call (docs/decisions/0018).
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation
from unisono._src.state import creation
from unisono._src.state.variables import Variable

GLOBAL_STEP = "global_step"


@final
class VariableStore:
    """Holds the variables of a model function by name.

    A name that one call uses twice is numbered: ``w``, ``w_1``.

    Attributes:
        variables: every variable of the model function, by its numbered name.
        will_be_restored: tells from the arguments of a new variable whether a
            checkpoint will give it its value; its initial value is then not computed.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.will_be_restored: Callable[[dict[str, Any]], bool] = lambda _: False

    def make_global_step(self) -> Variable:
        """Makes and returns the variable that counts steps, in the current scope."""
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
        """The trainable variables in the order of their creation."""
        return [v for v in self.variables.values() if v.trainable]

    @contextlib.contextmanager
    def call_scope(self) -> Iterator[CallCreator]:
        """Lets one call of the model function in this block find its variables."""
        call = CallCreator(self)
        with contextlib.ExitStack() as stack:
            if "keras" in sys.modules:
                # Keras numbers layers without a name through the life of the process.
                # Numbering starts again here, so every call finds `dense/kernel`. The
                # module imports Keras, so it is imported only if the program did so.
                names = importlib.import_module(
                    "unisono._src.integrations.keras.internals"
                )
                stack.enter_context(names.restart_numbering())
            stack.enter_context(creation.variable_creator_scope(call))
            yield call


@final
class CallCreator:
    """Creates or finds the variables of one call of a model function.

    It is a variable creator, as `variable_creator_scope` takes it.

    Args:
        store: the variables of all calls.
    """

    def __init__(self, store: VariableStore) -> None:
        self.store = store
        self._used: set[str] = set()

    def __call__(
        self, next_creator: Callable[..., Variable], **kwargs: Any
    ) -> Variable:
        """Returns the variable of this name from an earlier call, or makes it."""
        name = kwargs.get("name") or "Variable"
        # A model function may make the global step itself; there is only one.
        if name == GLOBAL_STEP:
            return self.store.global_step
        key = self._key(name)
        known = self.store.variables.get(key)
        if known is None:
            if self.store.will_be_restored(kwargs):
                kwargs["initial_value"] = _make_zeros(kwargs["initial_value"])
            known = self.store.variables[key] = next_creator(**kwargs)
        else:
            _check_same(key, known, kwargs)
        return known

    def _key(self, name: str) -> str:
        # TensorFlow's numbering. Variables of one name are told apart by their order,
        # so a model function must make them in the same order every time.
        numbered = (f"{name}_{i}" for i in itertools.count(1))
        key = next(k for k in itertools.chain([name], numbered) if k not in self._used)
        self._used.add(key)
        return key


def _make_zeros(value: ArrayLike | Callable[[], ArrayLike]) -> jax.Array:
    """Returns zeros with the shape and type of an initial value."""
    # Variables are made while the model function is traced, so the initializer is only
    # traced here, and never runs.
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
            f"but in an earlier call it had shape {known.shape}. A variable has the "
            "same shape on every call and in every mode; give variables of different "
            "shapes different names."
        )


def get_global_step(graph: object = None) -> Variable:
    """Returns the variable that counts the steps of an `Estimator`.

    A model function can read it, for example for a learning rate schedule. The
    estimator updates it, so the model function does not have to.

    Args:
        graph: accepted and ignored; there are no graphs.

    Raises:
        RuntimeError: called outside a model function.

    >>> import tempfile
    >>> import unisono as uni
    >>> def model_fn(features, mode):
    ...     step = {"step": uni.train.get_global_step().value()}
    ...     return uni.estimator.EstimatorSpec(
    ...         mode, loss=0.0, train_op=lambda: None, eval_metric_ops=step
    ...     )
    >>> def input_fn():
    ...     return uni.data.Dataset.range(6).batch(2)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     estimator = uni.estimator.Estimator(model_fn, directory).train(input_fn)
    ...     int(estimator.evaluate(input_fn)["step"])
    3
    """
    # A model function runs inside the creator of its `VariableStore`.
    for creator in reversed(ambient.current().creators):
        if isinstance(creator, CallCreator):
            return creator.store.global_step
    raise RuntimeError(
        "There is a global step only inside the model_fn of an Estimator. In your own "
        "loop, count the steps in a variable or read optimizer.iterations."
    )
