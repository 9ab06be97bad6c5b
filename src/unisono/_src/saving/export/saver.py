"""`saved_model.save`: exports functions as StableHLO and weights as a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unisono._src.execution import function
from unisono._src.execution.concrete_function import ConcreteFunction
from unisono._src.foundation import errors, library_hooks
from unisono._src.saving.checkpoint import object_graph, snapshot, worker_meeting
from unisono._src.saving.export import model_description
from unisono._src.saving.export.function_exporter import (
    FunctionExporter,
    hold_single_copies,
)
from unisono._src.saving.export.model_description import Item, SavedFunction
from unisono._src.saving.format import checkpoint_directory, checksummed_files
from unisono._src.state.variables import Variable

# The name of the signature where only one function was given.
DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclasses.dataclass(frozen=True)
class SaveOptions:
    """Options of `saved_model.save`.

    Args:
        platforms: the kinds of devices on which the functions can run, out of cpu,
            cuda, rocm and tpu; by default all of them.
        experimental_io_device: accepted and ignored.
        experimental_custom_gradients: accepted and ignored; gradients are always stored
            with the functions, including those of `custom_gradient`.
        save_debug_info: accepted and ignored.

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
    _: dataclasses.KW_ONLY
    experimental_io_device: str | None = None
    experimental_custom_gradients: bool = True
    save_debug_info: bool = False


def save(
    obj: object,
    export_dir: str | os.PathLike[str],
    signatures: object = None,
    options: SaveOptions | None = None,
) -> None:
    """Exports the variables of an object, and its functions that have a signature.

    The functions are stored as StableHLO programs for one device, and each variable as
    one copy. `load` does not need the Python code. A Keras model is exported with its
    `__call__`, for prediction. A Flax model needs `signatures`, because it does not
    describe its inputs. With several workers, every worker must call this function; if
    they pass the same directory, one of them writes for all.

    Args:
        obj: an object with variables, and with methods that are decorated with
            `unisono.function` and have an `input_signature`; a model of Keras or Flax;
            or one variable.
        export_dir: the directory to write to; an older model is replaced in one step.
        signatures: a function with an input signature, the result of its
            `get_concrete_function`, or a dict of these. The loaded object has them in
            `signatures`, where they return dicts, as in TensorFlow. A single function
            becomes `serving_default`. By default this is the function of a Keras model,
            or the only function of `obj`.
        options: how to export.

    Raises:
        ValueError: `obj` is a container or a plain value; or a function uses a
            variable that `obj` does not have, or cannot be exported; or the inputs of
            a model are not known.
        SaveError: the model could not be written; an older one is unchanged.
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
        with meeting.share_failure():
            # The numbers of this list name the objects from here on: in the variables,
            # the functions and the description.
            found = object_graph.walk(obj)
            _check_root(found[0])
            with contextlib.ExitStack() as stack:
                variables = _find_variables(found, stack)
                made, left_out = _export_functions(
                    found, variables, signatures, options
                )
                items = [
                    _describe_object(f, variables.get(i)) for i, f in enumerate(found)
                ]
            for reason in left_out:
                warnings.warn(reason, stacklevel=2)
            # A model has the variables alone, and all workers have the same.
            taken = snapshot.take(obj, False, meeting, has_worker_states=False)
            # Of the workers with the same target the first one writes.
            if meeting.details.index(str(target)) == meeting.index:
                try:
                    _write(target, taken, items, made)
                except errors.SaveError:
                    raise
                except Exception as error:
                    raise snapshot.to_save_error(target, error) from error
                finally:
                    taken.held.release()
        meeting.finish()


def _check_root(root: object_graph.FoundObject) -> None:
    """Raises `ValueError` unless an object is one that `load` can return."""
    is_container = isinstance(root.obj, dict | list | tuple)
    if _is_variable(root) or (root.kind is None and not is_container):
        return
    raise ValueError(
        "Expected an object with attributes, such as a unisono.Module, or a variable; "
        f"received {root.obj!r} of type {type(root.obj).__name__}. Make it an "
        "attribute of a unisono.Module and save that."
    )


def _find_variables(
    found: list[object_graph.FoundObject], stack: contextlib.ExitStack
) -> dict[int, Variable]:
    """Returns the variables of a model by number, also those of Keras and Flax.

    Args:
        found: the objects of the model.
        stack: the block in which the variables of other libraries are ours.
    """
    return {
        i: f.obj if isinstance(f.obj, Variable) else stack.enter_context(f.obj.lend())
        for i, f in enumerate(found)
        if _is_variable(f)
    }


def _is_variable(found: object_graph.FoundObject) -> bool:
    return isinstance(found.obj, Variable | library_hooks.LibraryVariable)


def _export_functions(
    found: list[object_graph.FoundObject],
    variables: dict[int, Variable],
    signatures: object,
    options: SaveOptions,
) -> tuple[list[FunctionExporter], list[str]]:
    """Returns the exporters of all functions, and why functions were left out."""
    left_out: list[str] = []
    made = [
        FunctionExporter(owner, name, fn, variables, options.platforms)
        for owner, name, fn in _list_functions(found, signatures, left_out)
    ]
    # Libraries let programs change their objects only while a scope is open.
    with (
        hold_single_copies(variables.values()),
        library_hooks.enter_scopes(),
    ):
        for exporter in made:
            exporter.run()
        models, without = _export_library_models(found, variables, made, options)
    # The functions of the root, which is number 0.
    own = [e for e in [*made, *models] if e.places[0][0] == 0]
    # TensorFlow's default signature: that of a Keras model, or the only function.
    default = [e for e in own if e in models] or own
    if signatures is None and len(default) == 1:
        default[0].places.append((None, DEFAULT_SERVING_SIGNATURE_DEF_KEY))
    return made + models, left_out + without


def _export_library_models(
    found: list[object_graph.FoundObject],
    variables: dict[int, Variable],
    others: list[FunctionExporter],
    options: SaveOptions,
) -> tuple[list[FunctionExporter], list[str]]:
    """Exports models of other libraries, except those that are part of one.

    Args:
        found: the objects of the model.
        variables: its variables, by number.
        others: the functions that the program has made itself.
        options: how to export.

    Returns:
        The exporters, and why models were left out.

    Raises:
        ValueError: the root cannot be exported, and there are no other functions.
    """
    made: list[FunctionExporter] = []
    left_out: list[str] = []
    seen: list[tuple[str, ...]] = []
    for number, item in enumerate(found):
        finder = library_hooks.state_finder_of(item.obj) if item.kind is None else None
        # A layer of a model that is exported needs no program of its own.
        if finder is None or any(item.path[: len(p)] == p for p in seen):
            continue
        is_required = number == 0 and not others
        try:
            fn = finder.make_forward(item.obj)
        except ValueError as error:
            if is_required:
                raise
            seen.append(item.path)
            # The program's own functions stand for it.
            if not others:
                left_out.append(f"{item} is exported without a function: {error}")
            continue
        if fn is None:
            continue
        seen.append(item.path)
        exporter = FunctionExporter(
            number, "__call__", fn, variables, options.platforms
        )
        try:
            exporter.run()
        except ValueError as error:
            if is_required:
                raise
            left_out.append(f"{item} is exported without its own function: {error}")
        else:
            made.append(exporter)
    return made, left_out


def _list_functions(
    found: list[object_graph.FoundObject], signatures: object, left_out: list[str]
) -> Iterator[tuple[int | None, str, Any]]:
    """Yields number of the owner, name and function of each function to export."""
    open_functions = []
    for number, item in enumerate(found):
        if item.kind is not None or isinstance(item.obj, dict | list | tuple):
            continue
        names = {**_class_attributes(item.obj), **vars(item.obj)}
        for name in sorted(names):
            if not function.is_function(names[name]):
                continue
            fn = getattr(item.obj, name)
            if fn.input_signature is None:
                open_functions.append(name)
            else:
                yield number, name, fn
    if open_functions:
        left_out.append(
            f"The functions {open_functions} have no input_signature and are not "
            "exported."
        )
    yield from _list_signatures(signatures or {})


def _list_signatures(given: Any) -> Iterator[tuple[None, str, Any]]:
    """Yields None, name and function of each signature that `save` was given."""
    if not isinstance(given, Mapping):
        given = {DEFAULT_SERVING_SIGNATURE_DEF_KEY: given}
    for name, fn in given.items():
        if isinstance(fn, ConcreteFunction):
            yield None, name, _make_function(fn)
        elif not function.is_function(fn) or fn.input_signature is None:
            raise ValueError(
                f"The signature {name!r} is {fn!r}; expected a unisono.function with "
                "an input_signature, or what its get_concrete_function returns."
            )
        else:
            yield None, name, fn


def _make_function(concrete: ConcreteFunction) -> Any:
    """Returns a function of the arguments of a concrete one that have arrays."""
    wanted = concrete.array_arguments

    def call(*given: object) -> Any:
        return concrete(**dict(zip(wanted, given, strict=True)))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    # The names of the arguments are stored, for calls by name.
    setattr(  # noqa: B010
        call,
        "__signature__",
        inspect.Signature([inspect.Parameter(name, kind) for name in wanted]),
    )
    return function.Function(call, list(wanted.values()))


def _class_attributes(obj: object) -> dict[str, Any]:
    """Returns the attributes of an object's class and its base classes, uncalled."""
    # Not `getattr`, which would run properties.
    found: dict[str, Any] = {}
    for cls in reversed(type(obj).__mro__):
        found |= vars(cls)
    return found


def _describe_object(
    found: object_graph.FoundObject, variable: Variable | None
) -> Item:
    """Returns the description from which `load` makes an object.

    Args:
        found: the object.
        variable: the variable that the object is, or None.
    """
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
    if variable is not None:
        about = {
            "name": variable.state_cell.name,
            "trainable": variable.trainable,
            "synchronization": variable.synchronization.name,
            "aggregation": variable.aggregation.name,
        }
    return Item(kind, found.children, found.key, about)


def _write(
    target: pathlib.Path,
    taken: snapshot.Snapshot,
    items: list[Item],
    made: list[FunctionExporter],
) -> None:
    """Writes a model: its programs, its weights and its description."""
    checkpoint_directory.check_free(target)
    if target.parent.is_dir():
        checkpoint_directory.sweep(target.parent)
    # Written aside, read back, and made visible by one rename, as checkpoints are.
    staging = checkpoint_directory.StagingDirectory(target)
    try:
        staging.open()
        where = staging.directory / model_description.FUNCTIONS
        where.mkdir()
        saved = []
        for i, exporter in enumerate(made):
            path = where / f"f{i}"
            path.write_bytes(exporter.program)
            found = checksummed_files.checksum(path)
            saved += [
                SavedFunction(
                    owner,
                    name,
                    path.name,
                    exporter.uses,
                    exporter.writes,
                    exporter.name_arguments(owner),
                    found.size,
                    found.crc32,
                )
                for owner, name in exporter.places
            ]
        variables = staging.directory.joinpath(*model_description.VARIABLES)
        variables.mkdir(parents=True)
        header = checkpoint_directory.new_header(target, is_step=False)
        snapshot.fill(variables, taken, header)
        model_description.write(
            staging.directory,
            model_description.ModelDescription(tuple(items), tuple(saved)),
        )
        model_description.read(staging.directory)
        checksummed_files.flush(staging.directory)
        staging.commit()
    finally:
        staging.close()
