"""`saved_model.load`: makes an object from an exported model, without its code."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
from jax import export

from unisono._src.execution import specs
from unisono._src.foundation import ambient, errors, wide_numbers
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.saving.checkpoint import (
    array_io,
    deferred_restore,
    object_graph,
    restore_values,
    snapshot,
)
from unisono._src.saving.export import model_description
from unisono._src.saving.export.model_description import (
    Item,
    ModelDescription,
    SavedFunction,
)
from unisono._src.saving.format import (
    manifest,
    one_version,
    signed_text,
)
from unisono._src.saving.format.manifest import Entry
from unisono._src.state import remote_state
from unisono._src.state.variables import Variable

# The calls out of a program that XLA itself provides: mathematics and placement. Any
# other call could reach a function of this process by its address, so a program from a
# stranger could run anything.
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


@final
class LoadedObject(deferred_restore.DeferredRestoreMixin):
    """An object of a loaded model: variables, functions and objects as attributes.

    Args:
        functions: the functions of the object, by name.

    Attributes:
        signatures: the signatures of the model, by name, which return dicts; only the
            root has any.
    """

    _checkpoint_takes_attributes = True

    def __init__(self, functions: dict[str, LoadedFunction]) -> None:
        self._functions = functions
        self.signatures: dict[str, LoadedSignature] = {}

    def _checkpoint_children(self) -> dict[str, object_graph.StateSlot]:
        return {
            name: object_graph.attribute_slot(self, name)
            for name, value in vars(self).items()
            if name not in ("_functions", "signatures", object_graph.PENDING_ATTRIBUTE)
            and object_graph.is_state(value)
        }

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Calls the model's own ``__call__``.

        Raises:
            TypeError: the model was exported without a ``__call__``.
        """
        if "__call__" not in self._functions:
            raise TypeError(
                "This object was exported without a __call__; its functions are "
                f"{sorted(self._functions)}."
            )
        return self._functions["__call__"](*args, **kwargs)


@final
class LoadedFunction:
    """A function of a loaded model.

    Args:
        program: the exported program.
        saved: its description in the model.
        variables: the variables that it takes, in order.
    """

    def __init__(
        self,
        program: export.Exported,
        saved: SavedFunction,
        variables: Sequence[Variable],
    ) -> None:
        self._program = program
        self._run: Callable[..., Any] = (
            program.call if program.has_vjp() else _refuse_gradient(program, saved)
        )
        self._saved = saved
        self._variables = list(variables)
        self.__name__ = saved.name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Runs the program with the current values of the variables.

        Raises:
            TypeError: the arguments are not those of the exported function.
        """
        missing = self._saved.arguments[len(args) :]
        if len(args) + len(kwargs) != len(self._saved.arguments) or set(kwargs) != set(
            missing
        ):
            raise TypeError(
                f"{self.__name__} takes the arguments "
                f"{', '.join(self._saved.arguments) or 'none'}; received {len(args)} "
                f"by position and {sorted(kwargs)} by name."
            )
        given = (*args, *(kwargs[name] for name in missing))
        weights = tuple(v.value() for v in self._variables)
        wanted = self._program.in_avals[len(weights) :]
        leaves, tree = jax.tree.flatten(given)
        # Numbers and NumPy arrays get the types of the signature. A wrong number of
        # leaves is left to JAX, whose error names both structures.
        if len(leaves) == len(wanted):
            leaves = [
                x
                if isinstance(x, jax.Array)
                else wide_numbers.as_jax(
                    x, aval.dtype, f"an argument of {self.__name__}"
                )
                for x, aval in zip(leaves, wanted, strict=True)
            ]
        given = jax.tree.unflatten(tree, leaves)
        # A program cannot change variables: it takes all of them,
        # and returns those it has set.
        result, new = self._run(weights, *given)
        for position, value in zip(self._saved.writes, new, strict=True):
            self._variables[position].assign(value, read_value=False)
        return result

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, with a `TensorSpec` in place of each array."""
        leaves = [_describe(aval) for aval in self._program.in_avals]
        (_, *given), _ = jax.tree.unflatten(self._program.in_tree, leaves)
        return dict(zip(self._saved.arguments, given, strict=False))

    @property
    def result(self) -> Any:
        """The result, with a `TensorSpec` in place of each array."""
        leaves = [_describe(aval) for aval in self._program.out_avals]
        return jax.tree.unflatten(self._program.out_tree, leaves)[0]

    def __repr__(self) -> str:
        return f"<loaded function {self.__name__}({', '.join(self._saved.arguments)})>"


def _refuse_gradient(
    program: export.Exported, saved: SavedFunction
) -> Callable[..., Any]:
    """Returns the call of a program whose gradient is a clear error."""

    def forward(*args: object) -> tuple[Any, None]:
        return program.call(*args), None

    def backward(kept: None, upstream: object) -> Any:
        raise NotImplementedError(
            f"The loaded function {saved.name} has no gradient. An operation in it had "
            "none when it was saved, such as a while_loop without maximum_iterations; "
            "or an older version saved it: save it again."
        )

    call = jax.custom_vjp(program.call)
    call.defvjp(forward, backward)
    return call


def _describe(aval: Any) -> specs.TensorSpec:
    """Returns the spec of an array; sizes that may differ are None."""
    shape = [n if isinstance(n, int) else None for n in aval.shape]
    return specs.TensorSpec(shape, aval.dtype)


@final
class LoadedSignature:
    """A signature of a loaded model: a function that returns a dict of its results.

    The keys are those of the dict that the saved function returned. A result that is no
    dict is ``output_0``; those of a list or tuple are ``output_0``, ``output_1`` and so
    on.

    Args:
        function: the function as it was saved.
    """

    def __init__(self, function: LoadedFunction) -> None:
        self._function = function
        self.__name__ = function.__name__

    def __call__(self, *args: object, **kwargs: object) -> dict[str, Any]:
        """Runs the program with the current values of the variables.

        Raises:
            TypeError: the arguments are not those of the exported function.
        """
        return _name_outputs(self._function(*args, **kwargs))

    @property
    def structured_input_signature(self) -> tuple[tuple[()], dict[str, Any]]:
        """No arguments by position, and those by name, with `TensorSpec`s."""
        found = self._function.arguments.items()
        return (), {name: _give_name(spec, name) for name, spec in found}

    @property
    def structured_outputs(self) -> dict[str, Any]:
        """The results by name, with `TensorSpec`s."""
        found = _name_outputs(self._function.result).items()
        return {name: _give_name(spec, name) for name, spec in found}

    def __repr__(self) -> str:
        names = ", ".join(self._function.arguments)
        return f"<loaded signature {self.__name__}({names})>"


def _give_name(spec: object, name: str) -> Any:
    """Returns a spec with a name, and a structure of specs as it is."""
    if not isinstance(spec, specs.TensorSpec):
        return spec
    return specs.TensorSpec(spec.shape, spec.dtype, name)


def _name_outputs(result: object) -> dict[str, Any]:
    """Returns a result as TensorFlow's signatures give it."""
    if result is None:
        return {}
    if isinstance(result, Mapping):
        return dict(result)
    if hasattr(result, "_asdict"):  # A named tuple.
        named: dict[str, Any] = result._asdict()
        return named
    parts = result if isinstance(result, (list, tuple)) else [result]
    return {f"output_{i}": part for i, part in enumerate(parts)}


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """Options of `saved_model.load`, for compatibility with TensorFlow.

    Args:
        allow_partial_checkpoint: accepted and ignored; a model has all its values.
        experimental_io_device: accepted and ignored.
        experimental_skip_checkpoint: must be False; values are always loaded.
        experimental_variable_policy: accepted and ignored; the scope in which you load
            the model determines where its variables are.

    Raises:
        ValueError: `experimental_skip_checkpoint` is True.

    >>> import tempfile, unisono
    >>> path = tempfile.mkdtemp() + "/v"
    >>> unisono.saved_model.save(unisono.Variable(3.0), path)
    >>> options = LoadOptions(experimental_io_device="/job:localhost")
    >>> float(unisono.saved_model.load(path, options=options).numpy())
    3.0
    """

    allow_partial_checkpoint: bool = False
    experimental_io_device: str | None = None
    experimental_skip_checkpoint: bool = False
    experimental_variable_policy: object = None

    def __post_init__(self) -> None:
        if self.experimental_skip_checkpoint:
            raise ValueError(
                "experimental_skip_checkpoint=True would give variables without "
                "values. Leave it out, and restore a checkpoint afterwards."
            )


def load(
    export_dir: str | os.PathLike[str], tags: object = None, options: object = None
) -> LoadedObject | Any:
    """Loads a model that `save` has exported; its Python code is not needed.

    Inside a strategy's scope the variables of the model are distributed.

    Args:
        export_dir: the directory given to `save`.
        tags: accepted and ignored.
        options: a `LoadOptions`; accepted and ignored.

    Returns:
        An object with the attributes and functions of the saved object, or a variable
        if a variable was saved.

    Raises:
        NotFoundError: the model does not exist.
        DataLossError: a file is damaged, or a program calls something other than the
            mathematical functions of XLA.
        FailedPreconditionError: the model was exported for different devices.

    >>> import tempfile, unisono
    >>> model = unisono.Module()
    >>> model.v = unisono.Variable(3.0)
    >>> scalar = unisono.TensorSpec([], "float32")
    >>> model.scale = unisono.function(lambda x: model.v * x, input_signature=[scalar])
    >>> path = tempfile.mkdtemp() + "/model"
    >>> unisono.saved_model.save(model, path)
    >>> loaded = unisono.saved_model.load(path)
    >>> _ = loaded.v.assign(5.0)
    >>> float(loaded.scale(2.0))
    10.0
    """
    directory = snapshot.absolute_path(export_dir)
    files = one_version.read(directory, _read_files)
    about = files.about
    functions: dict[int, dict[str, LoadedFunction]] = collections.defaultdict(dict)
    # The objects need the dicts of their functions, and the functions the variables of
    # the objects: the dicts are made first and filled below.
    made = _build(directory, files, functions)
    root = made[0]
    signatures: dict[str, LoadedSignature] = {}
    for saved, program in zip(about.functions, files.programs, strict=True):
        loaded = LoadedFunction(program, saved, [made[i] for i in saved.uses])
        if saved.owner is None:
            signatures[saved.name] = LoadedSignature(loaded)
            continue
        owner = made[saved.owner]
        if not isinstance(owner, LoadedObject):
            raise signed_text.damage_error(
                directory / model_description.NAME,
                f"the owner of the function {saved.name} cannot have functions",
            )
        functions[saved.owner][saved.name] = loaded
        if saved.name != "__call__":
            setattr(owner, saved.name, loaded)
    if isinstance(root, Variable):
        return root
    if not isinstance(root, LoadedObject):
        raise signed_text.damage_error(
            directory / model_description.NAME, "its root is a value or a container"
        )
    root.signatures = signatures
    return root


def contains_saved_model(export_dir: str | os.PathLike[str]) -> bool:
    """Returns whether a directory contains a model that `save` has exported.

    Args:
        export_dir: the directory.

    >>> import tempfile, unisono
    >>> path = tempfile.mkdtemp() + "/v"
    >>> unisono.saved_model.save(unisono.Variable(3.0), path)
    >>> contains_saved_model(path), contains_saved_model(tempfile.mkdtemp())
    (True, False)
    """
    return (snapshot.absolute_path(export_dir) / model_description.NAME).is_file()


@final
class _ModelFiles(NamedTuple):
    """The content of a model's files.

    Attributes:
        about: the description of the model.
        programs: the programs, in the order of the functions in the description.
        entries: the entries of the values, by the number of the object.
        read: the arrays, by the names that entries give them.
    """

    about: ModelDescription
    programs: list[export.Exported]
    entries: dict[int, Entry]
    read: dict[str, Any]


def _read_files(directory: pathlib.Path) -> _ModelFiles:
    """Reads and checks all files of a model."""
    about = model_description.read(directory)
    programs = [_read_program(directory, saved) for saved in about.functions]
    weights = directory.joinpath(*model_description.VARIABLES)
    found = restore_values.read_usable(weights)
    entries = {
        i: found.entries[item.key]
        for i, item in enumerate(about.items)
        if item.key in found.entries
    }
    stored = {e.place: e for e in entries.values() if e.file}
    read = array_io.read(weights / manifest.ARRAYS, stored)
    return _ModelFiles(about, programs, entries, read)


def _read_program(directory: pathlib.Path, saved: SavedFunction) -> export.Exported:
    """Returns one program.

    Raises:
        DataLossError: JAX cannot read it, or it calls something unsafe.
        FailedPreconditionError: it was exported for other devices.
    """
    path = directory / model_description.FUNCTIONS / saved.file
    try:
        found = export.deserialize(bytearray(path.read_bytes()))
        # The text is what is compiled, so it cannot hide a call. The gradient is a
        # program of its own and is searched, too.
        text = found.mlir_module()
        if found.has_vjp():
            text += found.vjp().mlir_module()
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
    # JAX calls the backend "gpu", and programs are exported for one maker of GPUs.
    names = {"gpu": {"cuda", "rocm"}}.get(here, {here})
    if not names & set(found.platforms):
        raise errors.FailedPreconditionError(
            f"The function {saved.name} in {directory} was exported for "
            f"{', '.join(found.platforms)} and cannot run on {here}. Export it again "
            f"with SaveOptions(platforms=[..., {sorted(names)[0]!r}])."
        )
    return found


def _build(
    directory: pathlib.Path,
    files: _ModelFiles,
    functions: dict[int, dict[str, LoadedFunction]],
) -> list[Any]:
    """Returns every object of a model, by number.

    Args:
        directory: the directory of the model, for messages.
        files: the content of its files.
        functions: gives each object, by number, the dict that will hold its functions.
    """
    items = files.about.items
    made: list[Any] = [None] * len(items)
    for i, item in enumerate(items):
        if item.kind == model_description.LEAF:
            made[i] = _make_leaf(directory, files, i, item)
        elif item.kind == model_description.OBJECT:
            made[i] = LoadedObject(functions[i])
    makers: dict[str, Callable[..., Any]] = {
        model_description.LIST: lambda c: list(c.values()),
        model_description.TUPLE: lambda c: tuple(c.values()),
        model_description.DICT: dict,
    }
    # Objects are numbered from the root down. In reverse order the contents of a
    # container exist before the container.
    for i in reversed(range(len(items))):
        item = items[i]
        below = {name: made[child] for name, child in item.children.items()}
        if item.kind in makers:
            made[i] = makers[item.kind](below)
        elif item.kind == model_description.OBJECT:
            for name, child in below.items():
                # Past `DeferredRestoreMixin`: nothing waits for these attributes.
                object.__setattr__(made[i], name, child)
    return made


def _make_leaf(
    directory: pathlib.Path, files: _ModelFiles, number: int, item: Item
) -> Any:
    """Returns a variable, an array or plain data.

    Raises:
        DataLossError: the weights have no such value.
    """
    entry = files.entries.get(number)
    if entry is None:
        raise signed_text.damage_error(
            directory / model_description.NAME, f"there is no value {item.key}"
        )
    if not entry.has_array:
        return entry.data()
    array = restore_values.to_array(entry, files.read.get(entry.place))
    if item.variable is None:
        return array
    about = item.variable
    # The programs take each variable as one array, so no partitioner may cut it.
    with ambient.push(colocate=remote_state.find_home(ambient.current())):
        made = Variable(
            wide_numbers.as_jax(array, None, f"the variable '{about['name']}'"),
            about["trainable"],
            name=about["name"],
            synchronization=VariableSynchronization[about["synchronization"]],
            aggregation=VariableAggregation[about["aggregation"]],
        )
    # The constructor gives every copy of a sync-on-read sum the whole value; `assign`
    # divides it.
    restore_values.assign(made, array)
    return made
