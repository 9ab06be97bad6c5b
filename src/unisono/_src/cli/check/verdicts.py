"""Judges a use of TensorFlow: it works the same, differs, or has another name."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, final

import numpy

from unisono._src.cli.check import conditions, keras_names, package_names, rows
from unisono._src.cli.check.scopes import CallArguments, Use
from unisono._src.foundation.tensorflow_names import (
    families,
    listing,
    missing,
    replacements,
    version_1,
)
from unisono._src.integrations import keras_renames

SAME, DIFFERS, RENAMED, UNKNOWN, MISSING = (
    "same", "differs", "renamed", "unknown", "missing",
)  # fmt: skip
# From the best to the worst.
ORDER = (SAME, DIFFERS, RENAMED, UNKNOWN, MISSING)


# How paths end that Keras saves to.
_OF_MODELS = (".keras", ".h5", ".hdf5")
_OF_WEIGHTS = (".weights.h5", ".weights.json")


@final
@dataclasses.dataclass(frozen=True)
class Verdict:
    """Holds the verdict on one use of TensorFlow.

    Attributes:
        use: the use.
        status: one of `ORDER`.
        told: how it differs, or what to write; empty if it is the same.
        new: the path that it has here, if that is another one.
    """

    use: Use
    status: str
    told: str = ""
    new: str = ""


def judge_all(uses: Iterable[Use]) -> list[Verdict]:
    """Returns one verdict for each place: the worst, if it may be several things."""
    worst: dict[int, Verdict] = {}
    for use in uses:
        made = judge(use)
        if made.status == UNKNOWN and use.kind == "object" and _is_own(use):
            continue
        # A name may stand for several things, and each of them
        # is a use of the same place.
        before = worst.get(id(use.node))
        if before is None or ORDER.index(made.status) > ORDER.index(before.status):
            worst[id(use.node)] = made
    return list(worst.values())


def _is_own(use: Use) -> bool:
    """Returns whether a member that the class has not is the program's own."""
    return use.may_be_own or isinstance(getattr(use.node, "ctx", None), ast.Store)


def judge(use: Use) -> Verdict:
    """Returns the verdict on a use."""
    if use.kind == "unknown":
        return Verdict(use, UNKNOWN, use.told)
    if use.kind == "form":
        return Verdict(use, *rows.FORMS.get(use.path, (SAME, "")))
    if use.kind == "package":
        return Verdict(use, MISSING, rows.OTHER_PACKAGES[use.path])
    is_member = use.kind == "object"
    status, told, new = _judge_path(use.path, is_member, use.call, use.where)
    is_set = isinstance(getattr(use.node, "ctx", None), ast.Store)
    if is_member and is_set and status == MISSING and _class_above(use.path):
        return Verdict(use, DIFFERS, "It can be set, and has no effect here.")
    return Verdict(use, status, told, new)


# Most uses are like others; a program may have any number that are not.
@functools.lru_cache(maxsize=20_000)
def _judge_path(
    path: str, is_member: bool, call: CallArguments | None, where: str
) -> tuple[str, str, str]:
    # In this order: private names; Keras, which is read from its own source; names that
    # are not here; calls that do not fit; names that differ.
    if path == "python" or path.startswith("python."):
        told = "It is private to TensorFlow. Use the public name of the same purpose."
        return MISSING, told, ""
    if path == "keras" or path.startswith("keras."):
        status, told = _judge_keras(path, is_member, call)
        return status, told, ""
    of_numpy = _judge_numpy_member(path)
    if of_numpy is not None:
        return *of_numpy, ""
    if package_names.find(path) is package_names.NOTHING:
        return _judge_missing(path, is_member)
    if call is not None:
        refused = package_names.find_mismatch(
            path, is_member, call.positional, call.keywords
        )
        if refused:
            return MISSING, refused, ""
    for each in package_names.public_paths(path):
        first, told = package_names.everyday_difference(each)
        told = rows.DIFFERENCES.get(each) or told
        weight, told = conditions.weigh(first, told, call, where)
        if weight != conditions.SILENT:
            return MISSING if weight == conditions.FAILS else DIFFERS, told, ""
    return SAME, "", ""


def _judge_numpy_member(path: str) -> tuple[str, str] | None:
    """Returns the verdict on a member of an array's shape or of a type, or None."""
    above, _, name = path.rpartition(".")
    if above == "Tensor.shape":
        has, told = hasattr(tuple, name), rows.SHAPE_GONE.get(name, rows.SHAPE_MEMBER)
    elif above == "Tensor.dtype" or _is_type(package_names.find(above)):
        has = hasattr(numpy.dtype, name)
        told = rows.TYPE_GONE.get(name, rows.TYPE_MEMBER)
    else:
        return None
    return (SAME, "") if has else (MISSING, told)


def _is_type(found: object) -> bool:
    return found is numpy.dtype or isinstance(found, numpy.dtype)


def _judge_missing(path: str, is_member: bool) -> tuple[str, str, str]:
    if is_member:
        return _judge_missing_member(path)
    shorter = path.removeprefix("compat.v1.")
    new = version_1.RENAMED.get(shorter, "")
    if path.startswith("compat.v2."):
        new = listing.drop_v2(path)
    if new and package_names.find(new) is not package_names.NOTHING:
        return RENAMED, f"Write tf.{new}.", new
    if shorter != path and package_names.find(shorter) is not package_names.NOTHING:
        return MISSING, f"Write tf.{shorter}, which is that of TensorFlow 2.", ""
    if listing.kind(path) is None:
        holder = _class_above(path)
        if holder is not None:
            return _judge_missing_member(path)
        return MISSING, _tell_neither(path), ""
    if listing.kind(path) == "member":
        return _judge_missing_member(path)
    return MISSING, missing.advise(path), ""


def _tell_neither(path: str) -> str:
    """Returns the sentence for a name that TensorFlow 2 does not have either."""
    # A row for what is above the name counts, but not that of all of TensorFlow 1.
    row = families.find(f"compat.v1.{path}")
    told = f" {row.instead}" if row.path.count(".") > 1 else ""
    return f"Neither TensorFlow 2 nor unisono has this name.{told}"


def _class_above(path: str) -> Any:
    found = package_names.find(path.rpartition(".")[0])
    return found if isinstance(found, type) else None


def _judge_missing_member(path: str) -> tuple[str, str, str]:
    above = path.rpartition(".")[0]
    if package_names.find(above) is package_names.NOTHING and above != "Tensor":
        return MISSING, f"tf.{above} is not here; see where it is made.", ""
    for each in package_names.public_paths(path):
        if each in replacements.MEMBERS:
            return MISSING, replacements.MEMBERS[each], ""
        if listing.kind(each) == "member":
            name = each.rpartition(".")[2]
            return MISSING, f"The class is here, without `{name}`. Leave it out.", ""
    return UNKNOWN, "TensorFlow's class has no such member; it may be your own.", ""


# Keras.


@functools.cache
def _find_keras() -> keras_names.Keras | None:
    return keras_names.Keras.find_installed()


def _judge_keras(
    path: str, is_member: bool, call: CallArguments | None
) -> tuple[str, str]:
    keras = _find_keras()
    if keras is None:
        return UNKNOWN, "Keras is not installed here: pip install 'unisono[keras]'."
    if is_member:
        return _judge_keras_member(keras, path, call)
    told = _find_change(path, call)
    if told is not None:
        return told
    moved = _find_new_path(path)
    if not keras.has(moved):
        return _judge_keras_below(keras, moved)
    definition = keras.find(moved)
    if definition is not None and call is not None:
        judged = _judge_keras_function(keras, definition, call)
        if judged[0] != SAME:
            return judged
    difference = rows.DIFFERENCES.get(path, "")
    if call is not None and ".optimizers." in path and "decay" in call.keywords:
        difference = f"`decay` is ignored. {rows.KERAS_ARGUMENTS['decay']}"
    return (DIFFERS, difference) if difference else (SAME, "")


def _judge_keras_below(keras: keras_names.Keras, path: str) -> tuple[str, str]:
    """Returns the verdict on a path that no module has: it may be a class' member."""
    definition = keras.find(path.rpartition(".")[0])
    if definition is not None and isinstance(definition.node, ast.ClassDef):
        return _judge_keras_member(keras, path, None)
    above, _, name = path.rpartition(".")
    if above == "keras.backend" and keras.has(f"keras.ops.{name}"):
        return MISSING, f"Write keras.ops.{name}; its arguments may be others."
    return MISSING, "Keras 3 has no such name."


def _judge_keras_member(
    keras: keras_names.Keras, path: str, call: CallArguments | None
) -> tuple[str, str]:
    above, _, name = path.rpartition(".")
    definition = keras.find(_find_new_path(above))
    if definition is None or not isinstance(definition.node, ast.ClassDef):
        return UNKNOWN, "The source does not tell what the object is."
    members = keras.members(definition)
    for cls in sorted(members.classes):
        if f"{cls}.{name}" in rows.KERAS_KEPT:
            return DIFFERS, rows.KERAS_KEPT[f"{cls}.{name}"]
    if name in members.names:
        method = members.methods.get(name)
        if method is None or call is None:
            return SAME, ""
        return _judge_keras_call(members, method, call)
    for cls in sorted(members.classes):
        if f"{cls}.{name}" in rows.KERAS_GONE:
            return MISSING, rows.KERAS_GONE[f"{cls}.{name}"]
    return UNKNOWN, "Keras' class has no such member; it may be your own."


def _judge_keras_call(
    members: keras_names.Members, method: ast.FunctionDef, call: CallArguments
) -> tuple[str, str]:
    """Returns the verdict on the call of a method of Keras."""
    names, passed = keras_names.find_parameters(method)
    owners = {f"{cls}.{method.name}" for cls in members.classes}
    status, told = _judge_arguments(None if passed else names, owners, call)
    if status == MISSING:
        return status, told
    ending = _ending(call)
    if method.name == "add_weight" and call.text("", 0).startswith("'"):
        return DIFFERS, rows.KERAS_NAME_FIRST
    if "Model.save" in owners and ending and not ending.endswith(_OF_MODELS):
        is_folder = "." not in ending or ending.endswith(".tf")
        return (
            (DIFFERS, rows.KERAS_FOLDER) if is_folder else (MISSING, rows.KERAS_ENDING)
        )
    is_other = ending and not ending.endswith(_OF_WEIGHTS)
    if "Model.save_weights" in owners and is_other:
        return DIFFERS, rows.KERAS_WEIGHTS
    return status, told


def _judge_keras_function(
    keras: keras_names.Keras, definition: keras_names.Definition, call: CallArguments
) -> tuple[str, str]:
    """Returns the verdict on the call of a class or function of Keras."""
    owners = frozenset({definition.node.name})
    if isinstance(definition.node, ast.ClassDef):
        owners = keras.members(definition).classes
    # It has no rate of its own.
    if "LossScaleOptimizer" in owners:
        owners -= {"Optimizer"}
    if definition.node.name == "LegacyOptimizerWarning":
        return MISSING, "Keras 3 has no legacy optimizers. Leave out `legacy.`."
    judged = _judge_arguments(keras.find_accepted(definition), owners, call)
    ending = _ending(call)
    if judged[0] == MISSING or "ModelCheckpoint" not in owners or not ending:
        return judged
    if call.text("save_weights_only", 4) == "True":
        return judged if ending.endswith(_OF_WEIGHTS) else (DIFFERS, rows.KERAS_WEIGHTS)
    return judged if ending.endswith(_OF_MODELS) else (DIFFERS, rows.KERAS_FOLDER)


def _judge_arguments(
    names: frozenset[str] | None, owners: Iterable[str], call: CallArguments
) -> tuple[str, str]:
    """Returns the verdict on the arguments of a call of Keras.

    Args:
        names: those that Keras takes; None if any.
        owners: the function that is called, or the class and what it derives from.
        call: the arguments.
    """
    taken: dict[str, str] = {}
    for owner in owners:
        taken |= rows.KERAS_TAKEN.get(owner, {})
    others = [name for name in call.keywords if names is not None and name not in names]
    for name in others:
        if name not in taken:
            told = rows.KERAS_ARGUMENTS.get(name, "Leave it out.")
            return MISSING, f"Keras 3 does not take the argument `{name}`. {told}"
    return (DIFFERS, taken[others[0]]) if others else (SAME, "")


def _ending(call: CallArguments) -> str:
    """Returns the last part of the path that a call is given; "" if it is open."""
    text = call.text("filepath", 0)
    return text[1:].rpartition("/")[2] if text.startswith("'") else ""


def _find_change(path: str, call: CallArguments | None) -> tuple[str, str] | None:
    """Returns the verdict on a name that `unisono.keras` itself treats, or None."""
    below = path.removeprefix("keras.")
    parts = below.split(".")
    for end in range(1, len(parts) + 1):
        known = ".".join(parts[:end])
        if known in keras_renames.TOLD:
            return MISSING, keras_renames.TOLD[known]
        if known in keras_renames.OWN:
            if call is not None and call.text("histogram_freq", 1) not in ("", "0"):
                return DIFFERS, "Histograms are not written, and a warning says so."
            difference = rows.DIFFERENCES.get(path, "")
            return (DIFFERS, difference) if difference else (SAME, "")
    above, _, name = below.rpartition(".")
    if above == "backend" and name in keras_renames.OPERATIONS:
        return SAME, ""
    return (SAME, "") if below in keras_renames.MOVED else None


def _find_new_path(path: str) -> str:
    """Returns the path at which Keras 3 has a name of a namespace that has moved."""
    above, _, name = path.removeprefix("keras.").rpartition(".")
    if above not in keras_renames.MOVED:
        return path
    return f"keras.{keras_renames.MOVED[above]}.{name}"


def result(path: str, is_call: bool) -> str | None:
    """Returns the path of the class of a name's value, or None if it is not known.

    Args:
        path: the path of a class, function or member.
        is_call: whether it is called; if not, it is an attribute of an object.
    """
    if not path.startswith("keras."):
        return package_names.result(path, is_call)
    keras = _find_keras()
    if keras is None or not is_call:
        return None
    if path in rows.KERAS_MODELS or path.startswith("keras.applications."):
        return "keras.Model"
    definition = keras.find(_find_new_path(path))
    is_class = definition is not None and isinstance(definition.node, ast.ClassDef)
    return path if is_class else None
