"""Loads weights from elsewhere into the variables of any strategy."""

from __future__ import annotations

import dataclasses
import difflib
import zlib
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from typing import final

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from unisono._src.foundation import errors, library_hooks
from unisono._src.saving.checkpoint import object_graph, restore_values, worker_meeting
from unisono._src.saving.format import manifest, safetensors_files
from unisono._src.saving.format.safetensors_files import StoredTensor, Tensors
from unisono._src.state import frames
from unisono._src.state.variables import Variable

Path = safetensors_files.Path
# From the name of a variable to that of its tensor; None leaves the variable alone.
Names = Mapping[str, str | None] | Callable[[str], str | None]
# Returns the array for a variable, given its name and its tensor.
Change = Callable[[str, np.ndarray], np.ndarray]
_Target = Variable | library_hooks.LibraryVariable

# So many problems, unread tensors and near names are shown.
_SHOWN_PROBLEMS, _SHOWN_TENSORS, _SHOWN_NAMES = 20, 8, 3
# Flax' variables for random streams, by class, are no weights.
_STREAMS = ("RngKey", "RngCount")


@final
@dataclasses.dataclass(frozen=True, repr=False)
class LoadedTensors:
    """The result of `load_safetensors`.

    Attributes:
        loaded: the tensor that was loaded into each variable, by the variable's name.
        unread: the tensors that were not loaded into any variable.
        untouched: the variables that `names` maps to None.
        nbytes: the number of bytes of the tensors that were loaded.
    """

    loaded: Mapping[str, str]
    unread: tuple[str, ...]
    untouched: tuple[str, ...]
    nbytes: int

    def __repr__(self) -> str:
        many = "" if len(self.loaded) == 1 else "s"
        size = _show_size(self.nbytes)
        lines = [f"{len(self.loaded)} variable{many} loaded, {size}"]
        for told, names in (
            ("not read", self.unread),
            ("left alone", self.untouched),
        ):
            if names:
                shown = ", ".join(names[:_SHOWN_TENSORS])
                more = " …" if len(names) > _SHOWN_TENSORS else ""
                lines.append(f"{len(names)} {told}: {shown}{more}")
        return f"LoadedTensors({'; '.join(lines)})"


def _show_size(nbytes: int) -> str:
    if nbytes < 1_000_000:
        return f"{nbytes:,} bytes"
    return f"{nbytes / 1e6:,.1f} MB"


@final
@dataclasses.dataclass(frozen=True)
class _Assignment:
    """A tensor for a variable.

    Attributes:
        name: the name of the variable.
        target: the variable.
        tensor: the tensor.
        change: what is done to it first, if anything.
    """

    name: str
    target: _Target
    tensor: StoredTensor
    change: Change | None

    def view(self) -> np.ndarray:
        """Returns what the variable gets, of the tensor's type; read when used."""
        found = self.tensor.view()
        if self.change is None:
            return found
        return np.asarray(self.change(self.name, found))

    def find_problem(self, cast: bool) -> str:
        """Returns why the variable cannot get it; an empty text if it can."""
        if self.tensor.dtype is None:
            return f"has the type {self.tensor.kind}, of which NumPy has no arrays."
        array, shape = self.view(), tuple(self.target.shape)
        if array.shape != shape:
            is_turned = array.shape == shape[::-1]
            hint = " It is transposed; see the argument change." if is_turned else ""
            return f"has the shape {array.shape}, and the variable {shape}.{hint}"
        return _find_type_problem(np.dtype(self.target.dtype), array, cast)

    @property
    def cut(self) -> jax.sharding.Sharding | None:
        """How devices have parts of the value; None if they have all of it."""
        target = self.target
        kept = target if isinstance(target, Variable) else target.strategy_variable
        if kept is None or kept.state_cell.split is None:
            return None
        found: jax.sharding.Sharding = kept.state_cell.sharding
        return found

    def load(self) -> None:
        """Gives the variable its value; each device reads its part of it."""
        array, dtype = self.view(), np.dtype(self.target.dtype)

        def read(index: tuple[slice, ...] | None) -> np.ndarray:
            # A copy: an array of JAX may be the very memory that it is made of, and
            # the file may change.
            return np.array(array[index or ()], dtype, order="C")

        sharding = self.cut
        value: np.ndarray | jax.Array
        if sharding is None:
            value = read(())
        else:
            value = jax.make_array_from_callback(array.shape, sharding, read)
        if isinstance(self.target, Variable):
            restore_values.assign(self.target, value)
        else:
            self.target.assign(value)


def load_safetensors(
    path: Path | Sequence[Path],
    variables: object,
    names: Names | None = None,
    *,
    change: Change | None = None,
    cast: bool = False,
) -> LoadedTensors:
    """Loads arrays of safetensors files into variables, under any strategy.

    Names, shapes and dtypes are compared before any variable changes. Each device reads
    its part of a tensor, and one tensor is in memory at a time. With several workers,
    all of them call this function, and each reads its own files, which must be equal.

    >>> import numpy as np, tempfile, pathlib, unisono
    >>> header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    >>> file = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> _ = file.write_bytes(
    ...     len(header).to_bytes(8, "little") + header + np.float32([1, 2]).tobytes()
    ... )
    >>> with unisono.distribute.MirroredStrategy().scope():
    ...     weight = unisono.Variable(np.zeros(2, "float32"), name="weight")
    >>> unisono.train.load_safetensors(file, [weight], names={"weight": "w"})
    LoadedTensors(1 variable loaded, 8 bytes)
    >>> weight.numpy()
    array([1., 2.], dtype=float32)

    Args:
        path: a file; a list of files; or a folder with one file, or with an index
            ``model.safetensors.index.json``.
        variables: a list of variables, which have their own names; a dictionary of
            variables, by any names; a Keras model, whose weights are named by their
            paths, as in ``dense/kernel``; or any object with variables in its
            attributes, such as a Flax module, where paths have dots, as in
            ``layers.0.kernel``.
        names: which tensor belongs to a variable: a dictionary from names of variables
            to names of tensors, or a function from one to the other. None instead of
            the name of a tensor leaves the variable unchanged. By default, a variable
            and its tensor have the same name.
        change: a function that gets the name of a variable and its tensor, a read-only
            NumPy array, and returns the new value, such as ``lambda name, x: x.T`` for
            weights of PyTorch's `Linear`. If it returns a view, only the parts of the
            file that the devices need are read.
        cast: whether numbers may be converted to another dtype, of the same kind or a
            more general one. If False, dtypes must be equal.

    Returns:
        Which tensors were loaded, and which were not read.

    Raises:
        DataLossError: a file is damaged, or is not a safetensors file.
        InvalidArgumentError: names, shapes or dtypes do not match; the error lists all
            mismatches.
        NotFoundError: the file does not exist.
        WorkerMismatchError: the files of the workers differ.
    """
    if frames.frame().is_compiled:
        raise RuntimeError(
            "load_safetensors changes variables at once, and a function that is being "
            "compiled would keep their old values. Call it outside of functions."
        )
    meeting = worker_meeting.Meeting("load_safetensors", str(path))
    with meeting.share_failure():
        # Whatever fails, the other workers are told.
        tensors = safetensors_files.open_all(path)
        targets = _name_targets(variables)
        planned, untouched = _plan(tensors, targets, names, change, cast)
        if meeting.is_joint:
            _compare_workers(meeting, tensors, planned)
        for assignment in planned:
            assignment.load()
    meeting.finish()
    used = {a.tensor.name for a in planned}
    return LoadedTensors(
        {a.name: a.tensor.name for a in planned},
        tuple(name for name in tensors if name not in used),
        tuple(untouched),
        sum(a.tensor.end - a.tensor.begin for a in planned),
    )


def _compare_workers(
    meeting: worker_meeting.Meeting, tensors: Tensors, planned: list[_Assignment]
) -> None:
    """Raises unless all workers load the same."""
    text = safetensors_files.digest(tensors)
    mark = zlib.crc32(text.encode())
    for a in planned:
        mark = zlib.crc32(f"{a.name} {a.tensor.name}".encode(), mark)
        # A worker that has parts of a variable reads these parts alone.
        if a.cut is None:
            bytes_read = a.tensor.file[a.tensor.begin : a.tensor.end]
            mark = zlib.crc32(bytes_read.data, mark)
    meeting.check_same(
        str(mark),
        f"{meeting.details[meeting.index]} has the mark {mark:08x}",
        "The workers would load different tensors, or the same into other variables. "
        "Nothing has changed.",
    )


# The variables and their names.


def _name_targets(variables: object) -> dict[str, _Target]:
    """Returns the variables by name.

    Raises:
        InvalidArgumentError: two have the same name, or there are none.
        TypeError: something else than a variable is among them.
    """
    # A model of Keras has its weights in a list, without those of its optimizer.
    weights, above = getattr(variables, "weights", None), ""
    if isinstance(weights, list):
        # Some kinds of models put their own name, which is numbered, in front.
        above = f"{getattr(variables, 'name', '')}/"
        variables = weights
    is_list = isinstance(variables, list | tuple | Iterator | ValuesView)
    given = list(variables) if is_list else variables  # type: ignore[call-overload]
    found: dict[str, _Target] = {}
    for item in object_graph.walk(given):
        if item.kind != manifest.VARIABLE:
            if is_list and len(item.path) == 1:
                raise TypeError(
                    "Expected variables, a dictionary of them, or a model; received "
                    f"{type(item.obj).__name__} in the list."
                )
            continue
        if _is_stream(item.obj):
            continue
        name = ".".join(item.path)
        if is_list or not item.path:
            name = item.obj.name.removesuffix(":0").removeprefix(above)
        if name in found:
            raise errors.InvalidArgumentError(
                f"Two variables have the name {name!r}. Pass a dictionary with a name "
                "for each."
            )
        found[name] = item.obj
    if not found:
        raise errors.InvalidArgumentError(
            f"There are no variables in {type(variables).__name__}. Build a model of "
            "Keras first, such as by calling it once."
        )
    return found


def _is_stream(target: _Target) -> bool:
    """Whether a variable belongs to a random stream."""
    if jnp.issubdtype(target.dtype, jax.dtypes.prng_key):
        return True
    return not isinstance(target, Variable) and target.name in _STREAMS


# What is loaded, and what is wrong with it.


def _plan(
    tensors: Tensors,
    targets: Mapping[str, _Target],
    names: Names | None,
    change: Change | None,
    cast: bool,
) -> tuple[list[_Assignment], list[str]]:
    """Returns the tensor of each variable, and the variables that get none.

    Raises:
        InvalidArgumentError: something does not fit; nothing has changed.
    """
    planned: list[_Assignment] = []
    untouched, problems = list[str](), _find_strange_names(names, targets)
    for name, target in targets.items():
        wanted = _find_wanted(names, name)
        if wanted is None:
            untouched.append(name)
        elif wanted not in tensors:
            # Names are many in a large model, and looking for near ones takes time.
            is_shown = len(problems) < _SHOWN_PROBLEMS
            near = _show_near(wanted, tensors) if is_shown else ""
            problems.append(f"{name}: there is no tensor {wanted!r}.{near}")
        else:
            planned.append(_Assignment(name, target, tensors[wanted], change))
            if wrong := planned[-1].find_problem(cast):
                problems.append(f"{name}: {wanted!r} {wrong}")
    if problems:
        shown = "\n".join(f"  {p}" for p in problems[:_SHOWN_PROBLEMS])
        more = len(problems) - _SHOWN_PROBLEMS
        rest = f"\n  … and {more} more" if more > 0 else ""
        raise errors.InvalidArgumentError(
            f"The variables cannot be loaded, and nothing has changed:\n{shown}{rest}"
        )
    return planned, untouched


def _find_wanted(names: Names | None, name: str) -> str | None:
    """Returns the name of the tensor of a variable; None to leave it alone."""
    if names is None:
        return name
    found = names.get(name, name) if isinstance(names, Mapping) else names(name)
    if found is not None and not isinstance(found, str):
        raise TypeError(
            f"names gives {found!r} for {name!r}; expected the name of a tensor, or "
            "None to leave the variable alone."
        )
    return found


def _find_strange_names(
    names: Names | None, targets: Mapping[str, _Target]
) -> list[str]:
    """Returns what is wrong with the keys of `names`."""
    if not isinstance(names, Mapping):
        return []
    return [
        f"{name}: names has it, and there is no such variable."
        f"{_show_near(name, targets)}"
        for name in names
        if name not in targets
    ]


def _show_near(name: str, known: Iterable[str]) -> str:
    """Returns a question for the names that are nearest, or some that there are."""
    near = difflib.get_close_matches(name, list(known), _SHOWN_NAMES, 0.6)
    if near:
        return f" Did you mean {' or '.join(map(repr, near))}?"
    first = list(known)[:_SHOWN_NAMES]
    return f" There are {', '.join(map(repr, first))} …" if first else ""


def _find_type_problem(wanted: np.dtype, array: np.ndarray, cast: bool) -> str:
    """Returns why an array cannot become a type; an empty text if it can."""
    given = array.dtype
    if given == wanted:
        return ""
    told = f"has the type {given.name}, and the variable {wanted.name}."
    if not cast:
        return f"{told} Write cast=True to convert the numbers."
    ranks = [_find_rank(t) for t in (given, wanted)]
    if ranks[0] > ranks[1]:
        return f"{told} That would lose more than digits."
    if jnp.issubdtype(wanted, jnp.integer) and array.size:
        limits = ml_dtypes.iinfo(wanted)  # type: ignore[no-untyped-call]
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            return f"{told} Its numbers, {low} to {high}, do not fit."
    return ""


def _find_rank(dtype: np.dtype) -> int:
    """Returns a number that is larger for more general kinds of numbers."""
    if dtype == np.bool_:
        return 0
    if jnp.issubdtype(dtype, jnp.integer):
        return 1
    return 3 if jnp.issubdtype(dtype, jnp.complexfloating) else 2
