"""Keras models as functions that can be exported, and their variables as ours."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from unisono._src.execution import function, specs
from unisono._src.integrations import kept_variables
from unisono._src.integrations.keras import backend_choice, internals, variables
from unisono._src.integrations.keras.internals import KerasModel, KerasVariable
from unisono._src.state.variables import Variable


@contextlib.contextmanager
def lend(variable: KerasVariable) -> Iterator[Variable]:
    """Give the variable that keeps the value; for the block only, if it has none.

    Raises:
        ValueError: Keras does not run on JAX, or the variable has no value.
    """
    own = variable.__dict__
    if own.get("_kept") is not None:
        yield own["_kept"]
        return
    value, kind, why = own.get("_value"), type(variable), backend_choice.find_obstacle()
    if why is not None or value is None:
        missing = (
            f"The Keras variable {variable.path!r} has no value yet. Build the model."
        )
        raise ValueError(why or missing)
    # The class whose values a `unisono.Variable` keeps; the array stays in `own`.
    variable.__class__ = variables.StrategyVariable
    own["_kept"] = kept_variables.make(
        value, trainable=bool(variable.trainable), name=variable.path
    )
    try:
        yield own["_kept"]
    finally:
        del own["_kept"]
        variable.__class__ = kind


def wrap_export(original: Callable[..., None]) -> Callable[..., None]:
    """Return `Model.export` with an error that says what to write in its place."""

    @functools.wraps(original)
    def export(self: KerasModel, *args: object, **kwargs: object) -> None:
        try:
            original(self, *args, **kwargs)
        except ImportError as error:
            raise ImportError(
                "model.export of Keras needs TensorFlow, which is not installed. Write "
                "unisono.saved_model.save(model, path), which unisono.saved_model.load "
                "and JAX alone can read; or install what it asks for."
            ) from error

    return export


def make_forward(model: KerasModel) -> function.Function[..., object]:
    """Return a function with an input signature that predicts as the model does.

    Args:
        model: a `keras.Model`.

    Raises:
        ValueError: the inputs of the model are not known.
    """
    inputs = find_inputs(model) if model.built else {}
    if not inputs:
        raise ValueError(
            f"The inputs of the Keras model {model.name!r} are not known, because it "
            "is not built. Call it with a batch of inputs, or give it a keras.Input."
        )
    _check_takes(model, len(inputs))

    def forward(*given: object) -> object:
        return model(*given, training=False)

    # Exported functions have the names of their arguments.
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in inputs]
    )
    return function.Function(forward, list(inputs.values()), name=model.name)


def _check_takes(model: KerasModel, count: int) -> None:
    """Raise `ValueError` unless a model can be called with `count` arguments."""
    try:
        inspect.signature(model.call).bind(*range(count))
    except TypeError as error:
        # Keras has recorded the shape of the first argument only.
        raise ValueError(
            f"The inputs of the Keras model {model.name!r} are not known: {error}. "
            "Give the function to export: saved_model.save(model, path, "
            "signatures=unisono.function(lambda a, b: model(a, b), "
            "input_signature=[...]))."
        ) from error


def find_inputs(model: KerasModel) -> dict[str, object]:
    """Return the specs of a built model's arguments, by name; nothing if not known."""
    if isinstance(model, internals.Functional):
        # What the program has declared, as the functional model takes it.
        declared = internals.declared_inputs(model)
        found = keras.tree.map_structure(specs.TensorSpec.from_tensor, declared)
        return {"inputs": found}
    if isinstance(model, keras.Sequential):
        (one,) = model.inputs
        return {"inputs": _free_batch(one.shape, one.dtype)}
    # Recorded at the first call, or given to `build`.
    shapes = getattr(model, "_build_shapes_dict", None) or {}
    names = [name.removesuffix("_shape") for name in shapes]
    if len(names) == 1:
        # Keras names a single one after that of `build`, not of `call`.
        names = ["inputs"]
    found = (_map_shapes(shape, model.input_dtype) for shape in shapes.values())
    return dict(zip(names, found, strict=True))


def _free_batch(shape: Sequence[int | None], dtype: str) -> specs.TensorSpec:
    """Return a spec without the size of the batch that a model was built with."""
    return specs.TensorSpec((None, *shape[1:]), dtype)


def _map_shapes(shapes: Any, dtype: str) -> object:
    """Return specs in the structure in which Keras has recorded shapes."""
    if isinstance(shapes, dict):
        return {name: _map_shapes(shape, dtype) for name, shape in shapes.items()}
    if all(n is None or isinstance(n, int) for n in shapes):
        return _free_batch(shapes, dtype)
    found = [_map_shapes(shape, dtype) for shape in shapes]
    return tuple(found) if isinstance(shapes, tuple) else found
