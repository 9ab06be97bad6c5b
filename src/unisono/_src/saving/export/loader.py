"""`saved_model.load`: an exported model as an object, without its Python code."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from unisono._src.foundation import errors
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.saving.checkpoint import (
    array_io,
    deferred_restore,
    restore_values,
    snapshot,
    state_slots,
)
from unisono._src.saving.export import model_description
from unisono._src.saving.export.model_description import (
    Item,
    ModelDescription,
    SavedFunction,
)
from unisono._src.saving.format import checksummed_files, manifest, signed_text
from unisono._src.saving.format.manifest import Entry
from unisono._src.state.variables import Variable

# Calls out of a program that XLA itself answers: mathematics and placement. Anything
# else could reach a function of this process by its address.
_SAFE_CALLS = re.compile(
    r"(lapack|cusolver|hipsolver|cublas|hipblas|cu_lu|hip_lu|blas|ducc_fft|"
    r"cu_threefry2x32|hip_threefry2x32)_\w+"
    r"|Sharding|SPMDFullToShardShape|SPMDShardToFullShape|annotate_device_placement"
    r"|ApproxTopK|TopK|Qr|Eigh|LuDecomposition|Cholesky|SchurDecomposition|Schur"
    r"|ProductOfElementaryHouseholderReflectors|shape_assertion"
    r"|mhlo\.\w+|chlo\.\w+|stablehlo\.\w+"
)
_CALL = re.compile(
    r'custom_call\s*@(?:"([^"]*)"|([\w.$-]+))|call_target_name = "([^"]*)"'
)


class LoadedObject(deferred_restore.Noticing):
    """An object of a loaded model: variables, functions and objects as attributes."""

    _checkpoint_takes_attributes = True

    def __init__(self) -> None:
        self._functions: dict[str, LoadedFunction] = {}
        self.signatures: dict[str, LoadedFunction] = {}

    def _checkpoint_children(self) -> dict[str, state_slots.StateSlot]:
        return {
            name: state_slots.attribute_slot(self, name)
            for name, value in vars(self).items()
            if name not in ("_functions", "signatures", state_slots.PENDING_ATTRIBUTE)
            and state_slots.is_state(value)
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model's own ``__call__``."""
        if "__call__" not in self._functions:
            raise TypeError(
                "This object was exported without a __call__; its functions are "
                f"{sorted(self._functions)}."
            )
        return self._functions["__call__"](*args, **kwargs)


class LoadedFunction:
    """A function of a loaded model.

    Args:
        program: the exported program.
        saved: what the model says about it.
        variables: what it takes, in order.
    """

    def __init__(
        self,
        program: export.Exported,
        saved: SavedFunction,
        variables: Sequence[Variable],
    ) -> None:
        self._program = program
        self._saved = saved
        self._variables = list(variables)
        self.__name__ = saved.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program with the values that the variables have here and now."""
        missing = self._saved.arguments[len(args) :]
        if len(args) + len(kwargs) != len(self._saved.arguments) or set(kwargs) != set(
            missing
        ):
            raise TypeError(
                f"{self.__name__} takes the arguments "
                f"{', '.join(self._saved.arguments) or 'none'}; received {len(args)} "
                f"and {sorted(kwargs)}."
            )
        given = (*args, *(kwargs[name] for name in missing))
        weights = tuple(v.value() for v in self._variables)
        wanted = self._program.in_avals[len(weights) :]
        leaves, tree = jax.tree.flatten(given)
        if len(leaves) == len(wanted):
            leaves = [
                x if isinstance(x, jax.Array) else jnp.asarray(x, aval.dtype)
                for x, aval in zip(leaves, wanted, strict=True)
            ]
        given = jax.tree.unflatten(tree, leaves)
        result, new = self._program.call(weights, *given)
        for position, value in zip(self._saved.writes, new, strict=True):
            self._variables[position].assign(value, read_value=False)
        return result

    def __repr__(self) -> str:
        return f"<loaded function {self.__name__}({', '.join(self._saved.arguments)})>"


def load(
    export_dir: str | os.PathLike[str], tags: Any = None, options: Any = None
) -> LoadedObject:
    """Load what `save` exported; none of the model's code is needed.

    Variables are made where `load` is called: inside a strategy's scope they are
    distributed.

    Args:
        export_dir: the directory given to `save`.
        tags: accepted, no effect.
        options: accepted, no effect.

    Returns:
        An object with the attributes and functions of the saved one.

    Raises:
        NotFoundError: there is no model.
        DataLossError: a file is damaged, or a program calls what it must not.
        FailedPreconditionError: the model was exported for other devices.
    """
    directory = snapshot.absolute_path(export_dir)
    about = model_description.read(directory)
    programs = [_read_program(directory, saved) for saved in about.functions]
    weights = directory.joinpath(*model_description.VARIABLES)
    found = checksummed_files.read_verified(weights)
    entries = {
        i: found.entries[item.key]
        for i, item in enumerate(about.items)
        if item.key in found.entries
    }
    stored = {e.file: e for e in entries.values() if e.file}
    read = array_io.read(weights / manifest.ARRAYS, stored)
    made = _Builder(directory, about, entries, read).build()
    root = made[0]
    signatures: dict[str, LoadedFunction] = {}
    for saved, program in zip(about.functions, programs, strict=True):
        loaded = LoadedFunction(program, saved, [made[i] for i in saved.uses])
        if saved.owner is None:
            signatures[saved.name] = loaded
            continue
        owner = made[saved.owner]
        if not isinstance(owner, LoadedObject):
            raise signed_text.damage_error(
                directory / model_description.NAME, "its objects are odd"
            )
        owner._functions[saved.name] = loaded
        if saved.name != "__call__":
            setattr(owner, saved.name, loaded)
    if not isinstance(root, LoadedObject):
        raise signed_text.damage_error(
            directory / model_description.NAME, "its root is no object"
        )
    root.signatures = signatures
    return root


def _read_program(directory: pathlib.Path, saved: SavedFunction) -> export.Exported:
    """One program, if it may run here."""
    path = directory / model_description.FUNCTIONS / saved.file
    try:
        found = export.deserialize(bytearray(path.read_bytes()))
        text = found.mlir_module()
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise signed_text.damage_error(path, f"JAX cannot read it: {reason}") from error
    for groups in _CALL.findall(text):
        target = next(filter(None, groups), "")
        if not _SAFE_CALLS.fullmatch(target):
            raise signed_text.damage_error(
                path, f"its program calls {target!r}, which is not mathematics"
            )
    here = jax.default_backend()
    names = {"gpu": {"cuda", "rocm"}}.get(here, {here})
    if not names & set(found.platforms):
        raise errors.FailedPreconditionError(
            f"The function {saved.name} in {directory} was exported for "
            f"{', '.join(found.platforms)} and cannot run on {here}. Export it again "
            f"with SaveOptions(platforms=[..., {sorted(names)[0]!r}])."
        )
    return found


class _Builder:
    """Makes the objects of a model."""

    def __init__(
        self,
        directory: pathlib.Path,
        about: ModelDescription,
        entries: dict[int, Entry],
        read: dict[str, Any],
    ) -> None:
        self._directory = directory
        self._about = about
        self._entries = entries
        self._read = read

    def build(self) -> list[Any]:
        """Every object, each once; containers last, when what they hold is there."""
        items = self._about.items
        made: list[Any] = [None] * len(items)
        for i, item in enumerate(items):
            if item.kind == model_description.LEAF:
                made[i] = self._make_leaf(i, item)
            elif item.kind == model_description.OBJECT:
                made[i] = LoadedObject()
        makers: dict[str, Callable[..., Any]] = {
            model_description.LIST: lambda c: list(c.values()),
            model_description.TUPLE: lambda c: tuple(c.values()),
            model_description.DICT: dict,
        }
        # Objects are numbered from the root down, so what is below comes first here.
        for i in reversed(range(len(items))):
            item = items[i]
            below = {name: made[child] for name, child in item.children.items()}
            if item.kind in makers:
                made[i] = makers[item.kind](below)
            elif item.kind == model_description.OBJECT:
                for name, child in below.items():
                    object.__setattr__(made[i], name, child)
        return made

    def _make_leaf(self, number: int, item: Item) -> Any:
        entry = self._entries.get(number)
        if entry is None:
            raise signed_text.damage_error(
                self._directory / model_description.NAME,
                f"there is no value {item.key}",
            )
        if not entry.has_array:
            return entry.data()
        array = restore_values.to_array(entry, self._read.get(entry.file))
        if item.variable is None:
            return array
        about = item.variable
        made = Variable(
            jnp.asarray(array),
            about["trainable"],
            name=about["name"],
            synchronization=VariableSynchronization[about["synchronization"]],
            aggregation=VariableAggregation[about["aggregation"]],
        )
        restore_values.assign(made, array)
        return made
