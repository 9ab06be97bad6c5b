"""Records the first steps of a TensorFlow program, for ``unisono parity --recorded``.

``python record.py OUT SCRIPT [ARGS]`` runs a program in its own environment, ends it
after some steps, and writes ``OUT/recording.json`` and ``OUT/recording.npz``. It needs
TensorFlow and NumPy alone. ``unisono parity --record`` prints this file.

A step is an outermost call of a `tf.function` or of `Strategy.run` that computes
gradients or changes trainable variables; with ``--step NAME``, a call of that function.
Functions run eagerly, because a compiled one shows symbols in place of numbers. What
this changes is measured: a second process runs the program as it is.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any, final

import numpy as np

VERSION = 1
_Function = Callable[..., object]


class StopError(BaseException):
    """Ends the program after its first steps; blocks that clean up see it."""


@final
class Recorder:
    """Records the steps of the program that runs in this process.

    Args:
        tf: the package TensorFlow.
        most: the number of steps.
        is_eager: whether functions run eagerly, so that gradients can be seen.
    """

    def __init__(self, tf: Any, most: int, is_eager: bool) -> None:
        self._tf, self._most, self._is_eager = tf, most, is_eager
        self._made: list[Any] = []  # Weak references, in the order of creation.
        self._first: dict[int, np.ndarray] = {}
        self._open: dict[str, Any] | None = None
        self.given: dict[str, np.ndarray] = {}  # First values of another recording.
        self.optimizers: list[Any] = []
        self.replicas, self.has_strategy = 1, False
        self.steps: list[dict[str, Any]] = []

    # Variables.

    def note_variable(self, variable: Any) -> None:
        """Notes a new variable, and its first value if a step makes it."""
        self._made.append(weakref.ref(variable))
        if self._open is not None and self._is_eager:
            self._first[len(self._made) - 1] = _numbers(variable)

    def _read(self) -> dict[int, np.ndarray]:
        """Returns the values of all variables that are alive, by their number."""
        alive = ((i, ref()) for i, ref in enumerate(self._made))
        return {i: _numbers(v) for i, v in alive if v is not None and _is_number(v)}

    def _number_of(self, variable: Any) -> int | None:
        """Returns the number of a variable; of a mirrored one, that of its first."""
        found = getattr(variable, "_value", variable)
        if hasattr(found, "values") and not callable(found.values):
            found = found.values[0]
        found = getattr(found, "_v", found)
        return next((i for i, ref in enumerate(self._made) if ref() is found), None)

    # Steps.

    def call(self, start: _Function, *args: object, **kwargs: object) -> object:
        """Makes a call, and records it if it is a step."""
        if self._open is not None:
            if not self._open["batch"]:
                self._open["batch"] = self._parts((args, kwargs))
            return start(*args, **kwargs)
        if not self._tf.executing_eagerly():
            return start(*args, **kwargs)
        if not self.steps:
            self._begin()
        before = self._read()
        made: dict[str, Any] = {"gradients": {}, "taped": {}}
        made["batch"] = self._parts((args, kwargs))
        self._open = made
        try:
            result = start(*args, **kwargs)
        finally:
            self._open = None
        made["after"] = self._read()
        if made["gradients"] or made["taped"] or self._is_changed(before, made):
            made["result"] = self._parts(result, is_result=True)
            self.steps.append(made)
            if len(self.steps) >= self._most:
                raise StopError
        return result

    def _begin(self) -> None:
        """Notes what variables have before the first step; sets it if it is given."""
        self._first = self._read()
        if not self.given:
            return
        groups = self._groups()
        names = self._names([whole for _, _, whole in groups])
        for at, (_, members, whole) in enumerate(groups):
            value = self.given.get(names[at])
            own = _combine(whole, {i: self._first[i] for i in members})
            if value is not None and value.shape == own.shape and (value != own).any():
                whole.assign(value)
        self._first = self._read()

    def _is_changed(self, before: dict[int, np.ndarray], made: dict[str, Any]) -> bool:
        return any(
            ref() is not None
            and ref().trainable
            and i in made["after"]
            and not (i in before and np.array_equal(made["after"][i], before[i]))
            for i, ref in enumerate(self._made)
        )

    def _parts(self, structure: object, is_result: bool = False) -> list[Any]:
        """Returns the arrays of a structure, each as a list of the replicas' parts."""
        found = []
        for leaf in self._tf.nest.flatten(structure):
            is_spread = isinstance(leaf, self._tf.distribute.DistributedValues)
            parts = list(leaf.values) if is_spread else [leaf]
            if not all(self._is_array(x, is_result) for x in parts):
                continue
            arrays = [_plain(x) for x in parts]
            if all((x.ndim or is_result) and x.dtype.kind in "fiub" for x in arrays):
                found.append(arrays)
        return found

    def _is_array(self, x: Any, is_result: bool) -> bool:
        if isinstance(x, (float, int, np.generic)):
            return is_result and not isinstance(x, bool)
        if isinstance(x, self._tf.Tensor):
            return hasattr(x, "numpy") and x.dtype not in (
                self._tf.string,
                self._tf.resource,
                self._tf.variant,
            )
        return isinstance(x, np.ndarray)

    # Gradients.

    def note_gradients(self, where: str, gradients: Any, variables: Any) -> None:
        """Notes gradients of variables, for the replica that computes them."""
        if self._open is None or not self._is_eager:
            return
        gradients = self._tf.nest.flatten(gradients)
        variables = self._tf.nest.flatten(variables)
        context = self._tf.distribute.get_replica_context()
        replica = int(context.replica_id_in_sync_group) if context else 0
        for i, gradient in enumerate(gradients):
            number = self._number_of(variables[i])
            if gradient is not None and number is not None:
                dense = self._tf.convert_to_tensor(gradient)
                self._open[where].setdefault(number, {})[replica] = _plain(dense)

    def note_optimizer(self, optimizer: Any) -> None:
        """Notes an optimizer that has got gradients."""
        if all(optimizer is not o for o in self.optimizers):
            self.optimizers.append(optimizer)

    def note_replicas(self, strategy: Any) -> None:
        """Notes how many replicas a strategy has."""
        self.replicas = max(self.replicas, int(strategy.num_replicas_in_sync))
        default = "_DefaultDistributionStrategy"
        self.has_strategy |= type(strategy).__name__ != default

    # What is written.

    def write(self, folder: pathlib.Path, told: dict[str, Any]) -> None:
        """Writes the record."""
        arrays: dict[str, np.ndarray] = {}
        groups = self._groups()
        slots = self._slots()
        names = self._names([whole for _, _, whole in groups])
        variables = []
        for order, (number, members, whole) in enumerate(groups):
            variable = self._made[number]()
            kind = "variable" if variable.trainable else "state"
            known = {i: self._first[i] for i in members if i in self._first}
            variables.append(
                {
                    "name": names[order],
                    "kind": "slot" if number in slots else kind,
                    "type": variable.dtype.name,
                }
            )
            arrays[f"first/{order}"] = _combine(whole, known)
            for at, step in enumerate(self.steps):
                after = {i: step["after"][i] for i in members if i in step["after"]}
                if after:
                    arrays[f"step{at}/after/{order}"] = _combine(whole, after)
                shown = step["gradients"].get(number) or step["taped"].get(number)
                for replica, gradient in (shown or {}).items():
                    arrays[f"step{at}/gradient/{order}/{replica}"] = gradient
        for at, step in enumerate(self.steps):
            for kind in ("batch", "result"):
                for j, parts in enumerate(step[kind]):
                    for r, part in enumerate(parts):
                        arrays[f"step{at}/{kind}/{j}/{r}"] = part
        made = {
            "version": VERSION,
            "tensorflow": self._tf.__version__,
            "replicas": self.replicas,
            "strategy": self.has_strategy,
            "steps": len(self.steps),
            "variables": variables,
            "optimizers": [describe(o) for o in self.optimizers],
            **told,
        }
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / "recording.npz", **arrays)  # type: ignore[arg-type]
        (folder / "recording.json").write_text(json.dumps(made, indent=1))

    def _groups(self) -> list[tuple[int, list[int], Any]]:
        """Returns each variable: its first part's number, all numbers, and itself."""
        numbers = {
            id(ref()): i for i, ref in enumerate(self._made) if ref() is not None
        }
        numbers = {k: i for k, i in numbers.items() if i in self._first}
        whole: dict[int, tuple[list[int], Any]] = {}
        inside: set[int] = set()
        for found in gc.get_objects():
            kind = type(found)
            if not issubclass(kind, self._tf.Variable):
                continue
            if not issubclass(kind, self._tf.distribute.DistributedValues):
                continue
            parts = [numbers[id(v)] for v in found.values if id(v) in numbers]
            if parts:
                whole[parts[0]] = parts, found
                inside |= set(parts[1:])
        alive = sorted(i for i in numbers.values() if i not in inside)
        return [(i, *whole.get(i, ([i], self._made[i]()))) for i in alive]

    def _slots(self) -> set[int | None]:
        found: list[Any] = []
        for optimizer in self.optimizers:
            own = getattr(optimizer, "variables", [])
            found += own() if callable(own) else own
        return {self._number_of(v) for v in found}

    def _names(self, variables: list[Any]) -> list[str]:
        """Returns the paths that Keras has for variables, or their names."""
        kind = getattr(getattr(self._tf, "keras", None), "Variable", None)
        paths = {
            id(getattr(x, "_value", None)): str(x.path)
            for x in gc.get_objects()
            if kind is not None and issubclass(type(x), kind)
        }
        return [paths.get(id(v)) or str(v.name.partition(":")[0]) for v in variables]


def _is_number(variable: Any) -> bool:
    return bool(variable.dtype.is_floating or variable.dtype.is_integer)


def _numbers(variable: Any) -> np.ndarray:
    return _plain(variable.numpy() if _is_number(variable) else 0)


def _plain(value: Any) -> np.ndarray:
    """Returns a copy of a value in a type that NumPy itself can write."""
    array = np.array(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def _combine(variable: Any, parts: dict[int, np.ndarray]) -> np.ndarray:
    """Returns the value that the copies of a variable stand for together."""
    values = list(parts.values())
    told = str(getattr(variable, "synchronization", "")), str(variable.aggregation)
    if len(values) > 1 and told[0].endswith("ON_READ"):
        if told[1].endswith("SUM"):
            return np.asarray(np.sum(values, axis=0), values[0].dtype)
        if told[1].endswith("MEAN"):
            return np.asarray(np.mean(values, axis=0), values[0].dtype)
    if values[0].dtype.kind == "f" and not all(
        np.array_equal(values[0], x) for x in values
    ):
        # Keras 3 has each replica update its own copy of batch statistics.
        return np.asarray(np.mean(values, axis=0), values[0].dtype)
    return values[0]


def describe(optimizer: Any) -> dict[str, Any]:
    """Returns the class of an optimizer, and the numbers of its configuration."""
    plain = (bool, int, float, str, type(None))
    config = optimizer.get_config() if hasattr(optimizer, "get_config") else {}
    numbers = {
        k: float(v) if isinstance(v, np.generic) else v for k, v in config.items()
    }
    told = {k: v for k, v in numbers.items() if isinstance(v, plain)}
    return {**told, "class": type(optimizer).__name__}


def _read_values(folder: pathlib.Path, at: str) -> dict[str, np.ndarray]:
    """Returns the values of the variables of a recording, by their names."""
    told = json.loads((folder / "recording.json").read_text())["variables"]
    names = [v["name"] for v in told]
    with np.load(folder / "recording.npz", allow_pickle=False) as arrays:
        return {
            name: arrays[f"{at}/{i}"]
            for i, name in enumerate(names)
            if names.count(name) == 1 and f"{at}/{i}" in arrays
        }


def measure_floor(one: pathlib.Path, two: pathlib.Path, steps: int) -> float | None:
    """Returns how much the variables of two recordings differ, relatively."""
    found = []
    for step in range(steps):
        ours = _read_values(one, f"step{step}/after")
        theirs = _read_values(two, f"step{step}/after")
        for name in ours.keys() & theirs.keys():
            a, b = (np.asarray(x[name], np.float64) for x in (ours, theirs))
            scale = float(np.max(np.abs(a), initial=0.0)) or 1.0
            if a.shape == b.shape:
                found.append(float(np.max(np.abs(a - b), initial=0.0)) / scale)
    return max(found) if found and np.isfinite(found).all() else None


# What is replaced in TensorFlow.


def _replace(
    recorder: Recorder, owner: object, name: str, make: Callable[..., _Function]
) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original, recorder)))


def _note_variables(original: _Function, recorder: Recorder) -> _Function:
    def init(self: Any, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        recorder.note_variable(self)

    return init


def _note_calls(original: _Function, recorder: Recorder) -> _Function:
    def call(self: Any, *args: object, **kwargs: object) -> object:
        return recorder.call(functools.partial(original, self), *args, **kwargs)

    return call


def _note_runs(original: _Function, recorder: Recorder) -> _Function:
    def run(
        self: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None
    ) -> object:
        recorder.note_replicas(self)

        def start(*args: object, **kwargs: object) -> object:
            return original(self, fn, args, kwargs, options)

        return recorder.call(start, *args, **(kwargs or {}))

    return run


def _note_tapes(original: _Function, recorder: Recorder) -> _Function:
    def gradient(self: Any, target: Any, sources: Any, *a: Any, **k: Any) -> object:
        found = original(self, target, sources, *a, **k)
        recorder.note_gradients("taped", found, sources)
        return found

    return gradient


def _note_apply(original: _Function, recorder: Recorder) -> _Function:
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> object:
        gradients = list(grads)
        recorder.note_optimizer(self)
        known = trainable_variables or self._trainable_variables
        recorder.note_gradients("gradients", gradients, list(known))
        return original(self, gradients, trainable_variables)

    return apply


def _note_pairs(original: _Function, recorder: Recorder) -> _Function:
    def apply_gradients(self: Any, grads_and_vars: Any, *a: Any, **k: Any) -> object:
        pairs = list(grads_and_vars)
        recorder.note_optimizer(self)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        recorder.note_gradients("gradients", gradients, variables)
        return original(self, pairs, *a, **k)

    return apply_gradients


def _compile_eagerly(original: _Function, recorder: Recorder) -> _Function:
    def compile(self: Any, *args: object, **kwargs: object) -> object:
        kwargs.update(run_eagerly=True, jit_compile=False)
        return original(self, *args, **kwargs)

    return compile


def install(tf: Any, recorder: Recorder, is_eager: bool) -> None:
    """Has TensorFlow tell the recorder of variables, calls and gradients."""
    replace = functools.partial(_replace, recorder)
    # A compiled function makes variables of another class with the same base.
    module = importlib.import_module("tensorflow.python.ops.resource_variable_ops")
    kind = module.ResourceVariable if is_eager else module.BaseResourceVariable
    replace(kind, "__init__", _note_variables)
    replace(type(tf.function(lambda: None)), "__call__", _note_calls)
    replace(tf.distribute.Strategy, "run", _note_runs)
    default = type(tf.distribute.get_strategy())
    if default.run is not tf.distribute.Strategy.run:
        replace(default, "run", _note_runs)
    if not is_eager:
        return
    tf.config.run_functions_eagerly(True)
    replace(tf.GradientTape, "gradient", _note_tapes)
    replace(tf.compat.v1.train.Optimizer, "apply_gradients", _note_pairs)
    kerases = [tf.keras]
    if importlib.util.find_spec("tf_keras"):
        kerases.append(importlib.import_module("tf_keras"))
    for keras in kerases:
        replace(keras.Model, "compile", _compile_eagerly)
        legacy = getattr(getattr(keras.optimizers, "legacy", None), "Optimizer", None)
        for kind in (keras.optimizers.Optimizer, legacy):
            if hasattr(kind, "apply"):  # Keras 3
                replace(kind, "apply", _note_apply)
            elif hasattr(kind, "apply_gradients"):
                replace(kind, "apply_gradients", _note_pairs)


# The program.


def run_script(script: str, step: str | None, call: Callable[..., Any]) -> None:
    """Runs a script; calls of the function with the name of the step go to `call`."""
    path = pathlib.Path(script)
    tree = ast.parse(path.read_bytes(), str(path))
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == step:
            node.decorator_list.insert(0, ast.Name("__record_step__", ast.Load()))
            found += 1
    if step and not found:
        raise SystemExit(f"{script} has no function {step!r}, which --step names.")

    def record_step(function: Callable[..., Any]) -> Callable[..., Any]:
        # A function, not a `partial`: it may be a method.
        return functools.wraps(function)(lambda *a, **k: call(function, *a, **k))

    main = type(sys)("__main__")
    main.__dict__.update(__file__=str(path), __record_step__=record_step)
    sys.modules["__main__"] = main
    sys.path.insert(0, str(path.resolve().parent))
    exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), main.__dict__)


def main() -> None:
    """Records the program that the command line names."""
    parser = argparse.ArgumentParser(description="Records a TensorFlow program.")
    parser.add_argument("--steps", type=int, default=5, help="how many steps")
    parser.add_argument("--step", metavar="NAME", help="the function that is the step")
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("out", help="a folder for the recording")
    parser.add_argument("script", help="the program")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    asked = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = importlib.import_module("tensorflow")
    folder, is_eager = pathlib.Path(asked.out), not asked.compiled
    recorder = Recorder(tf, asked.steps, is_eager)
    if asked.compiled:
        recorder.given = _read_values(folder.parent, "first")
    install(tf, recorder, is_eager)
    random.seed(0)
    np.random.seed(0)
    tf.random.set_seed(0)
    sys.argv = [asked.script, *asked.args]
    with contextlib.suppress(StopError):
        run_script(asked.script, asked.step, recorder.call)
    if asked.compiled:
        recorder.write(folder, {})
        return
    if not recorder.steps:
        raise SystemExit(
            f"{asked.script} ended without a step: an outermost call of a tf.function "
            "or of Strategy.run that computes gradients or changes trainable "
            "variables. Name the function that is the step: --step train_step."
        )
    _finish(recorder, folder, asked)


def _finish(recorder: Recorder, folder: pathlib.Path, asked: Any) -> None:
    """Writes the recording, with the floor, and tells what it has."""
    told = {"script": pathlib.Path(asked.script).name, "step": asked.step}
    recorder.write(folder, {**told, "floor": None})
    again = [sys.executable, __file__, "--compiled", f"--steps={len(recorder.steps)}"]
    again += [f"--step={asked.step}"] if asked.step else []
    other = folder / "compiled"
    again += [str(other), asked.script, *asked.args]
    done = subprocess.run(again, capture_output=True, text=True, check=False)
    floor = None
    if (other / "recording.json").exists():
        floor = measure_floor(folder, other, len(recorder.steps))
        for path in other.iterdir():
            path.unlink()
        other.rmdir()
    recorder.write(folder, {**told, "floor": floor})
    print(
        f"Recorded in {folder}: {len(recorder.steps)} steps of {asked.script} on "
        f"{recorder.replicas} replicas. Its functions ran eagerly."
    )
    if floor is None:
        print(f"What this changes is not known:\n{done.stderr[-500:]}")
    else:
        print(f"Compiled, the variables differ by {floor:.1e} at most.")


if __name__ == "__main__":
    main()
