"""Classes are abstract or final, and no class replaces a method that works.

A reader who finds a method thus knows that it is the one that runs. A class implements
the abstract members of its bases and replaces no other. Behaviour that varies is a
field, or an object that is passed in. A constructor may extend that of its base, which
it calls.
"""

import abc
import collections
import enum
import importlib
import inspect
import pathlib
import pkgutil
import types

import unisono._src
from tests.architecture import snapshot
from unisono._src.foundation import public_names

PREFIX = "unisono._src."
FOLDER = str(pathlib.Path(unisono.__file__).parent)
OPTIONAL = ("flax", "keras", "ray")

_CONTRACT = "TensorFlow's contract: a program's own subclass may leave it out."
_EXTRA = "A subclass adds its own state to the position of its base."
_PROGRAM = "Only the frame of a program does something here."

# Members that subclasses replace nevertheless, and why.
_SERVERS = "Workers of parameter servers have datasets of their own."
REPLACED = {
    "cluster.resolvers.base.ClusterResolver._answer": _CONTRACT,
    "cluster.resolvers.base.ClusterResolver._sources": _CONTRACT,
    "cluster.resolvers.base.ClusterResolver.environment": _CONTRACT,
    "cluster.resolvers.base.ClusterResolver.master": _CONTRACT,
    "cluster.resolvers.base.ClusterResolver.num_accelerators": _CONTRACT,
    "cluster.resolvers.base.ClusterResolver.task_type": _CONTRACT,
    "estimator.hooks.CheckpointSaverListener.after_save": _CONTRACT,
    "estimator.hooks.SessionRunHook.after_run": _CONTRACT,
    "estimator.hooks.SessionRunHook.end": _CONTRACT,
    "execution.host_inputs.HostIterator.__next__": "Only workers read their datasets.",
    "execution.specs.TypeSpec.describes": "Only a TensorSpec describes an array.",
    "foundation.library_hooks.StateFinder.prepare": "Flax's objects need none.",
    "foundation.library_hooks.StateFinder.watch": "Flax's objects are made complete.",
    "input.plan.cursors.FunctionCursor.get_state": _EXTRA,
    "input.plan.cursors.FunctionCursor.set_state": _EXTRA,
    "input.plan.cursors.Cursor.cancel": "Most streams never wait.",
    "input.plan.cursors.Cursor.skip": "Reading is always right; a shortcut is faster.",
    "input.plan.cursors.Cursor.units": "Most streams count elements, a few count rows.",
    "input.plan.cursors.IteratorCursor.get_state": _EXTRA,
    "input.plan.cursors.IteratorCursor.read": "PyTorch's generators are checked first.",
    "input.plan.cursors.IteratorCursor.set_state": _EXTRA,
    "input.plan.cursors.UnaryCursor.cancel": "The other workers are told as well.",
    "input.plan.nodes.Node.__str__": "Python's own protocol, with the name as default.",
    "input.plan.nodes.Node.example": "A nested dataset has no example of zeros.",
    "input.sources.iterables.Loader._spec": "An example has no axis of examples.",
    "state.frames.StateFrame.begin_change": "Only eager code shares its values with "
    "other threads.",
    "state.frames.StateFrame.note_assignment": _PROGRAM,
    "state.frames.StateFrame.cells": _PROGRAM,
    "state.frames.StateFrame.note_topology": _PROGRAM,
    "state.frames.StateFrame.settle": _PROGRAM,
    "foundation.errors.OpError.__notes__": "Errors of files are of another layout.",
    "strategies.base.Strategy.reduce": "TensorFlow 1 needs no axis.",
    "strategies.base.Strategy.__reduce_ex__": "Dataset functions take it to workers.",
    "strategies.extended.StrategyExtended._batch_reduce_to": _CONTRACT,
    "strategies.extended.StrategyExtended._update_together": _CONTRACT,
    "strategies.local.LocalExtended._distribute_dataset": _SERVERS,
    "strategies.local.LocalExtended._distribute_from_function": _SERVERS,
    "strategies.local.SingleExtended._reduce_to": _SERVERS,
    "values.array_operators.ArrayOperators.__hash__": "TensorFlow refuses to hash "
    "variables only.",
    "values.array_operators.ArrayOperators.__iter__": "A variable in parts gives its "
    "parts, as in TensorFlow.",
}

_PUBLIC = "Programs make objects of it and subclass it."
_ROOT = "It only gives its subclasses a common type, as in TensorFlow."

# Classes with subclasses of ours that are not abstract, and why.
_OLDER = "TensorFlow's older class of the same name is a subclass, too."
NOT_ABSTRACT = {
    "estimator.hooks.CheckpointSaverListener": _PUBLIC,
    "estimator.hooks.SessionRunHook": _PUBLIC,
    "execution.contexts.ReplicaContext": _PUBLIC,
    "execution.specs.TypeSpec": _ROOT,
    "foundation.ambient.PerThread": "Python's threading.local, under a name of ours.",
    "foundation.options.CommunicationOptions": _OLDER,
    "foundation.process_bound.ProcessBound": "Steps ask often whether a value is "
    "distributed, and `abc.ABC` makes that slow.",
    "input.api.dataset.Dataset": _PUBLIC,
    "input.plan.cursors.IteratorCursor": "Streams of two libraries know their order.",
    "input.sources.arrays.Listed": "A list of shards is a list that can be told apart.",
    "saving.checkpoint.deferred_restore.DeferredRestoreMixin": "It is mixed into "
    "classes of programs, which may have a metaclass of their own.",
    "saving.checkpoint.module.Module": _PUBLIC,
    "state.variables.Variable": "Calling it makes an object of one of its subclasses.",
    "strategies.base.Strategy": _PUBLIC,
    "strategies.mirrored.CentralStorageStrategy": _OLDER,
    "strategies.mirrored.MirroredStrategy": _OLDER,
    "strategies.multi_worker.ExperimentalMultiWorkerMirroredStrategy": _OLDER,
    "strategies.multi_worker.MultiWorkerMirroredStrategy": _OLDER,
    "strategies.one_device.OneDeviceStrategy": _OLDER,
    "strategies.tpu.TPUStrategy": _OLDER,
    "strategies.version_1.StrategyV1": _ROOT,
}


def _find_classes():
    """Returns every class that a module below `_src` defines, by its name."""
    found = {}
    for info in pkgutil.walk_packages(unisono._src.__path__, PREFIX):
        try:
            module = importlib.import_module(info.name)
        except ModuleNotFoundError as e:
            if e.name not in OPTIONAL:
                raise
            continue
        waiting = list(vars(module).values())
        while waiting:
            cls = waiting.pop()
            is_new = inspect.isclass(cls) and _name(cls) not in found
            if is_new and _home(cls) == info.name:
                found[_name(cls)] = cls
                waiting.extend(vars(cls).values())
    return found


def _home(cls):
    return public_names.homes.get(cls, cls.__module__)


def _name(cls):
    return f"{_home(cls)}.{cls.__qualname__}".removeprefix(PREFIX)


# Found at collection, not in a test: loading a library changes the environment, which
# would count as a leak of the test.
CLASSES = _find_classes()
PARENTS = {
    _name(base): base
    for cls in CLASSES.values()
    for base in cls.__mro__[1:]
    if _name(base) in CLASSES
}


def _is_open(value):
    return getattr(value, "__isabstractmethod__", False)


def _open_members(cls):
    return [name for name in dir(cls) if _is_open(getattr(cls, name, None))]


def _members(cls):
    """Returns the methods and properties that are written in a class."""
    slots = types.MemberDescriptorType | types.GetSetDescriptorType
    return {
        name: value
        for name, value in vars(cls).items()
        if hasattr(type(value), "__get__")
        and name != "__subclasshook__"  # Protocol makes one for each class.
        and not inspect.isclass(value)
        and not isinstance(value, slots)
        and not _is_generated(value)
    }


def _is_generated(value):
    """Whether `dataclass` or `NamedTuple` made a method."""
    code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
    return code is not None and not code.co_filename.startswith(FOLDER)


def _replaced(cls):
    """Returns the names of the working members of bases that a class replaces."""
    found = []
    for name, value in _members(cls).items():
        above = [b for b in cls.__mro__[1:] if name in vars(b) and _name(b) in CLASSES]
        if not above or _is_open(vars(above[0])[name]):
            continue
        works = name in _members(above[0])
        adds = name == "__init__" and "__init__" in value.__code__.co_names
        if works and not adds:
            found.append(f"{_name(above[0])}.{name}")
    return found


def test_no_class_replaces_what_another_does():
    found = collections.defaultdict(list)
    for name, cls in CLASSES.items():
        for member in _replaced(cls):
            found[member].append(name)
    unexpected = {member: found[member] for member in found.keys() - REPLACED.keys()}
    assert not unexpected, (
        "expected each class to implement what is abstract and to replace nothing, "
        f"received {unexpected}; make the member abstract, or what varies a field."
    )
    stale = REPLACED.keys() - found.keys()
    assert not stale, f"nothing replaces {sorted(stale)} any more: take it out."


def test_a_class_with_subclasses_is_abstract():
    usable = {
        name
        for name, cls in PARENTS.items()
        if abc.ABC not in cls.__bases__
        and not _open_members(cls)
        and not issubclass(cls, BaseException | tuple)
    }
    assert usable == NOT_ABSTRACT.keys(), (
        "expected every class with subclasses to be abstract, but for those listed; "
        f"not abstract: {sorted(usable - NOT_ABSTRACT.keys())}, abstract by now: "
        f"{sorted(NOT_ABSTRACT.keys() - usable)}. Derive it from abc.ABC, or share an "
        "abstract base with its subclasses."
    )


def test_a_class_without_subclasses_is_final_unless_it_is_public():
    public = {value for _, value in snapshot.public_names() if inspect.isclass(value)}
    unmarked = [
        name
        for name, cls in CLASSES.items()
        if name not in PARENTS
        and cls not in public
        and "__final__" not in vars(cls)
        and not issubclass(cls, enum.Enum | BaseException)
        and not getattr(cls, "_is_protocol", False)
    ]
    assert not unmarked, f"expected `@final` on {sorted(unmarked)}."


def test_a_final_class_has_no_subclass_and_leaves_nothing_open():
    final = {name: cls for name, cls in CLASSES.items() if "__final__" in vars(cls)}
    assert not final.keys() & PARENTS.keys()
    incomplete = {name: _open_members(cls) for name, cls in final.items()}
    assert not any(incomplete.values()), {k: v for k, v in incomplete.items() if v}
