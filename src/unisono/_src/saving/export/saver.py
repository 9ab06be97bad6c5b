"""`saved_model.save`: exports functions as StableHLO and weights as a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import jax
from jax import export

from unisono._src.execution import function, specs
from unisono._src.foundation import ambient, errors, nest
from unisono._src.foundation.public_names import publish
from unisono._src.saving.checkpoint import graph, snapshot, worker_meeting
from unisono._src.saving.export import model_description
from unisono._src.saving.export.model_description import Item, SavedFunction
from unisono._src.saving.format import checkpoint_directory, checksummed_files
from unisono._src.state import assignment, frames, trace_versions
from unisono._src.state.variables import Variable

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclasses.dataclass(frozen=True)
class SaveOptions:
    """Options of `saved_model.save`.

    Args:
        platforms: the kinds of devices that the functions can run on: some of cpu,
            cuda, rocm, tpu. Default: all of them.

    >>> import tempfile, unisono
    >>> model = unisono.Module()
    >>> scalar = unisono.TensorSpec([], "float32")
    >>> model.double = unisono.function(lambda x: 2 * x, input_signature=[scalar])
    >>> path = tempfile.mkdtemp() + "/model"
    >>> options = unisono.saved_model.SaveOptions(platforms=["cpu"])
    >>> unisono.saved_model.save(model, path, options=options)
    >>> float(unisono.saved_model.load(path).double(4.0))
    8.0
    """

    platforms: Sequence[str] = PLATFORMS


def save(
    obj: Any,
    export_dir: str | os.PathLike[str],
    signatures: Any = None,
    options: SaveOptions | None = None,
) -> None:
    """Exports the variables of an object, and its functions that have a signature.

    The functions are stored as StableHLO programs for one device, the variables as one
    copy. `load` needs none of the Python code. With several workers every worker must
    call it; one of those that give the same directory writes.

    Args:
        obj: an object with variables and with methods made by `unisono.function` with
            an `input_signature`.
        export_dir: the directory to write; an older model is replaced in one step.
        signatures: a function with an input signature, or a dict of them; the loaded
            object has them in `signatures`.
        options: how to export.

    Raises:
        ValueError: a function uses a variable that `obj` does not have, or cannot be
            exported.
        SaveError: the model could not be written; an older one is untouched.
        WorkerError: not all workers save.

    >>> import tempfile, unisono
    >>> class Scale(unisono.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.v = unisono.Variable(3.0)
    ...
    ...     @unisono.function(input_signature=[unisono.TensorSpec([], "float32")])
    ...     def __call__(self, x):
    ...         return self.v * x
    >>> path = tempfile.mkdtemp() + "/scale"
    >>> unisono.saved_model.save(Scale(), path)
    >>> float(unisono.saved_model.load(path)(2.0))
    6.0
    """
    options = options or SaveOptions()
    target = snapshot.absolute_path(export_dir)
    with snapshot.leave_scopes():
        meeting = worker_meeting.Meeting("a save of a model", str(target))
        with meeting.telling():
            found = graph.walk(obj)
            made, programs = _export_functions(found, signatures, options)
            taken = snapshot.take(obj, is_detached=False)
            # Of the workers with the same target the first one writes.
            if meeting.details.index(str(target)) == meeting.index:
                try:
                    _write(
                        target,
                        taken,
                        [_describe_object(f) for f in found],
                        made,
                        programs,
                    )
                except errors.SaveError:
                    raise
                except Exception as error:
                    raise snapshot.to_save_error(target, error) from error
        meeting.finish()


def _export_functions(
    found: list[graph.Found], signatures: Any, options: SaveOptions
) -> tuple[list[_FunctionExporter], list[Any]]:
    """Returns the exporters of all functions, and the serialised programs."""
    numbers = {id(f.obj): i for i, f in enumerate(found) if _is_variable(f)}
    variables = {i: found[i].obj for i in numbers.values()}
    made = [
        _FunctionExporter(owner, name, fn, variables, options)
        for owner, name, fn in _list_functions(found, signatures)
    ]
    with _hold_single_copies(variables.values()):
        return made, [exporter.run() for exporter in made]


def _is_variable(found: graph.Found) -> bool:
    return isinstance(found.obj, Variable)


def _list_functions(
    found: list[graph.Found], signatures: Any
) -> Iterator[tuple[int | None, str, Any]]:
    """Yields number of the owner, name and function of each function to export."""
    left_out = []
    for number, item in enumerate(found):
        if item.kind is not None or isinstance(item.obj, dict | list | tuple):
            continue
        names = {**_class_attributes(item.obj), **vars(item.obj)}
        for name in sorted(names):
            if not function.is_function(names[name]):
                continue
            fn = getattr(item.obj, name)
            if fn.input_signature is None:
                left_out.append(name)
            else:
                yield number, name, fn
    if left_out:
        warnings.warn(
            f"The functions {left_out} have no input_signature and are not exported.",
            stacklevel=4,
        )
    given = signatures or {}
    if not isinstance(given, Mapping):
        given = {"serving_default": given}
    for name, fn in given.items():
        if not function.is_function(fn) or fn.input_signature is None:
            raise ValueError(
                f"The signature {name!r} is {fn!r}; expected a unisono.function with "
                "an input_signature."
            )
        yield None, name, fn


def _class_attributes(obj: Any) -> dict[str, Any]:
    """Returns the attributes of an object's class and its base classes, uncalled."""
    # Not `getattr`, which would run properties.
    found: dict[str, Any] = {}
    for cls in reversed(type(obj).__mro__):
        found |= vars(cls)
    return found


@contextlib.contextmanager
def _hold_single_copies(variables: Any) -> Iterator[None]:
    """Runs a block in which distributed variables are plain ones with one copy.

    The exported program is for one device and takes each variable as one array.
    """
    before = []
    try:
        with frames.LOCK:
            for v in variables:
                cell = v.state_cell
                value = assignment.read(v)
                one = frames.Cell(
                    frames.Policy.PLAIN, v.shape, v.dtype, None, cell.name, cell.origin
                )
                one.array, one.aggregation = value, cell.aggregation
                before.append((v, cell))
                v.state_cell = one
        yield
    finally:
        for v, cell in before:
            v.state_cell = cell


@final
class _FunctionExporter:
    """Exports one function as a program.

    Args:
        owner: the number of the object that has the function; None for a signature.
        name: the name of the function.
        fn: the function, with an input signature.
        variables: the variables of the model, by number.
        options: how to export.

    Attributes:
        uses: the numbers of the variables that the program takes.
        writes: the positions in `uses` of the variables it sets; known after `run`.
    """

    def __init__(
        self,
        owner: int | None,
        name: str,
        fn: Any,
        variables: dict[int, Variable],
        options: SaveOptions,
    ) -> None:
        self.owner = owner
        self.name = name
        self._fn = function.python_function(getattr(fn, "function", fn))
        self._specs = tuple(fn.input_signature)
        self.uses = tuple(variables)
        self.writes: tuple[int, ...] = ()
        self._variables = list(variables.values())
        self._options = options

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments that the signature describes."""
        found = inspect.signature(self._fn).parameters
        return tuple(found)[: len(self._specs)]

    def run(self) -> bytes:
        """Returns the program, serialised.

        Raises:
            ValueError: the function cannot be exported.
        """
        weights = tuple(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in self._variables)
        arguments = _to_abstract(self._specs)
        kept = trace_versions.Versions(are_needed=True)
        # JAX must not reuse a trace in which variables had other values
        # (docs/decisions/0008).
        kept.advance()
        try:
            exported = export.export(
                jax.jit(lambda w, *args: self._call(w, args, kept)),
                platforms=tuple(self._options.platforms),
            )(weights, *arguments)
            return bytes(exported.serialize())
        except (ValueError, NotImplementedError, TypeError) as error:
            raise ValueError(
                f"The function {self.name} cannot be exported for "
                f"{tuple(self._options.platforms)}: {error}"
            ) from error
        finally:
            kept.close()

    def _call(self, weights: Any, args: Any, kept: trace_versions.Versions) -> Any:
        """Traces the function with weights in place of the variables.

        Returns:
            The result, and the new values of the variables it sets.
        """
        cells = [v.state_cell for v in self._variables]
        frame = frames.FunctionFrame(cells, weights, kept)
        with ambient.push(state=frame):
            result = nest.map_structure(_unwrap_variable, self._fn(*args))
            frame.finish()
        stray = [c for c in frame.values if c not in cells]
        if stray:
            names = ", ".join(f"'{c.name}' (created at {c.origin})" for c in stray)
            raise ValueError(
                f"it uses {names}, which the saved object does not have; make it an "
                "attribute"
            )
        self.writes = tuple(i for i, c in enumerate(cells) if c in frame.written)
        return result, [frame.values[cells[i]] for i in self.writes]


def _unwrap_variable(x: Any) -> Any:
    return x.value() if isinstance(x, Variable) else x


def _to_abstract(signature: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns shapes and types of arguments; a None in a shape becomes symbolic."""
    scope = export.SymbolicScope()
    count = iter(range(10_000))

    def leaf(spec: Any) -> Any:
        if not isinstance(spec, specs.TensorSpec):
            raise ValueError(f"expected TensorSpec in the signature, found {spec!r}")
        if spec.shape is None:
            raise ValueError(f"the number of axes of {spec!r} is not known")
        text = ",".join(f"d{next(count)}" if n is None else str(n) for n in spec.shape)
        is_known = None not in spec.shape
        shape = spec.shape if is_known else export.symbolic_shape(text, scope=scope)
        return jax.ShapeDtypeStruct(shape, spec.dtype)

    return tuple(jax.tree.map(leaf, spec) for spec in signature)


def _describe_object(found: graph.Found) -> Item:
    """Returns the description of an object that `load` makes it from."""
    kind = (
        model_description.LEAF if found.kind is not None else model_description.OBJECT
    )
    for container, name in (
        (dict, model_description.DICT),
        (list, model_description.LIST),
        (tuple, model_description.TUPLE),
    ):
        if found.kind is None and isinstance(found.obj, container):
            kind = name
    about = None
    if isinstance(found.obj, Variable):
        about = {
            "name": found.obj.state_cell.name,
            "trainable": found.obj.trainable,
            "synchronization": found.obj.synchronization.name,
            "aggregation": found.obj.aggregation.name,
        }
    return Item(kind, found.children, found.key, about)


def _write(
    target: pathlib.Path,
    taken: snapshot.Snapshot,
    items: list[Item],
    made: list[_FunctionExporter],
    programs: list[bytes],
) -> None:
    """Writes a model: its programs, its weights and its description."""
    checkpoint_directory.check_free(target)
    if target.parent.is_dir():
        checkpoint_directory.sweep(target.parent)
    # Written aside, read back, and made visible by one rename, as checkpoints are.
    draft = checkpoint_directory.Draft(target)
    try:
        draft.open()
        where = draft.directory / model_description.FUNCTIONS
        where.mkdir()
        saved = []
        for i, (exporter, program) in enumerate(zip(made, programs, strict=True)):
            path = where / f"f{i}"
            path.write_bytes(program)
            found = checksummed_files.checksum(path)
            saved.append(
                SavedFunction(
                    exporter.owner,
                    exporter.name,
                    path.name,
                    exporter.uses,
                    exporter.writes,
                    exporter.arguments,
                    found.size,
                    found.crc32,
                )
            )
        variables = draft.directory.joinpath(*model_description.VARIABLES)
        variables.mkdir(parents=True)
        header = checkpoint_directory.new_header(target, is_step=False)
        snapshot.fill(variables, taken, header)
        model_description.write(
            draft.directory,
            model_description.ModelDescription(tuple(items), tuple(saved)),
        )
        model_description.read(draft.directory)
        checksummed_files.flush(draft.directory)
        draft.commit()
    finally:
        draft.close()


publish("unisono.saved_model", SaveOptions, save)
