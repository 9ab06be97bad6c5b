"""`Estimator`: trains, evaluates and uses a model function."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from unisono._src.estimator import calling, checkpointing, exporting, loops
from unisono._src.estimator import compiled_steps as steps_lib
from unisono._src.estimator import hooks as hooks_lib
from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.estimator_spec import ModeKeys
from unisono._src.estimator.hooks import CheckpointSaverListener, SessionRunHook
from unisono._src.foundation import errors
from unisono._src.foundation.public_names import publish
from unisono._src.machines import devices
from unisono._src.saving.checkpoint import reading
from unisono._src.strategies import current, one_device
from unisono._src.workers import process_group

_LOG = logging.getLogger("unisono")
_KINDS: dict[str, Any] = {
    ModeKeys.TRAIN: steps_lib.Training,
    ModeKeys.EVAL: steps_lib.Evaluation,
    ModeKeys.PREDICT: steps_lib.Prediction,
}


class Estimator:
    """Trains, evaluates and uses the model that a function describes.

    State is in the checkpoints of `model_dir`: every call of `train`, `evaluate` or
    `predict` starts from the newest. With several workers each of them makes the
    estimator and calls the same methods.

    Args:
        model_fn: called as ``model_fn(features, labels, mode, params, config)``, with
            those of the arguments that it has, once per replica in replica context,
            while a step is compiled. It makes its variables and returns an
            `EstimatorSpec`; variables of one name are the same on every call.
        model_dir: where checkpoints go; default that of `config`, or a new directory.
        config: a `RunConfig`.
        params: for `model_fn` and input functions.
        warm_start_from: a checkpoint, or a directory of them, from which trainable
            variables get their first values.

    Raises:
        ValueError: `model_fn` takes other arguments, or two directories are given.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: str | os.PathLike[str] | None = None,
    ) -> None:
        calling.check_model_fn(model_fn, params)
        if config is not None and not isinstance(config, RunConfig):
            raise ValueError(
                f"config must be an instance of `RunConfig`, received {config!r}."
            )
        self._model_fn = model_fn
        self._config = _with_directory(config or RunConfig(), model_dir)
        self._params = dict(params or {})
        self._warm_start = (
            None if warm_start_from is None else os.fspath(warm_start_from)
        )
        self._built: dict[str, Any] = {}

    # What it is.

    @property
    def model_dir(self) -> str:
        """Where checkpoints go."""
        assert self._config.model_dir is not None
        return self._config.model_dir

    @property
    def config(self) -> RunConfig:
        """Where and how it runs."""
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters."""
        return dict(self._params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model function, bound to this estimator's parameters."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            batch = features if labels is None else (features, labels)
            params = self._params
            return calling.call_model_fn(
                self._model_fn, batch, mode, params, config, has_labels=True
            )

        return public_model_fn

    def eval_dir(self, name: str | None = None) -> str:
        """Where the summaries of an evaluation go."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint that is whole, or None."""
        return reading.latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """The names of all variables in the newest checkpoint."""
        listed = reading.list_variables(self._required_checkpoint())
        names = (checkpointing.name_of(key) for key, _ in listed)
        return sorted(name for name in names if name is not None)

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the newest checkpoint.

        Raises:
            NotFoundError: there is no such variable; names those there are.
        """
        if name not in self.get_variable_names():
            raise errors.NotFoundError(
                f"There is no variable {name!r} in {self.latest_checkpoint()}; there "
                f"are {', '.join(self.get_variable_names())}."
            )
        path = self._required_checkpoint()
        return np.asarray(reading.load_variable(path, checkpointing.key_of(name)))

    def _required_checkpoint(self) -> str:
        found = self.latest_checkpoint()
        if found is None:
            raise ValueError(f"Could not find trained model in {self.model_dir}.")
        return found

    # Training.

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Train until the data ends, or for some steps.

        Starts from the newest checkpoint in `model_dir`, if there is one; saves before
        the first step of all, as `config` says, and after the last.

        Args:
            input_fn: returns a dataset of ``(features, labels)`` or features. Called
                once for each worker; each replica takes a batch of its own from it, so
                it batches by the size of a replica. May take `params`, `config`, `mode`
                and `input_context`, an `InputContext` to shard by.
            hooks: `SessionRunHook`s.
            steps: how many steps to make from here.
            max_steps: at which global step to end; if it is reached, nothing is done.
            saving_listeners: `CheckpointSaverListener`s.

        Returns:
            The estimator.

        Raises:
            ValueError: `steps` and `max_steps` are both given, or not positive.
            NanLossDuringTrainingError: the loss is not a number any more.
        """
        _check_steps(steps, max_steps)
        _check_context("train")
        loop = hooks_lib.Hooks(hooks)
        latest = checkpointing.agreed_latest(self.model_dir)
        if max_steps is not None and checkpointing.step_of(latest) >= max_steps:
            _LOG.info("Skipping training since max_steps has already been reached.")
            return self
        last = math.inf if max_steps is None else max_steps
        with self._built_for(ModeKeys.TRAIN, latest) as built:
            saver = checkpointing.Saver(built.store, self._config, saving_listeners)
            with self._iterating(built, input_fn, ModeKeys.TRAIN) as iterator:
                self._train(built, iterator, loop, saver, latest, (steps, last))
        return self

    def _train(
        self,
        built: Any,
        iterator: Any,
        loop: hooks_lib.Hooks,
        saver: checkpointing.Saver,
        latest: str | None,
        until: tuple[int | None, float],
    ) -> None:
        if not self._begin(built, iterator, loop, latest):
            raise _no_step(built.strategy.num_replicas_in_sync)
        saver.restore(latest, iterator)
        if latest is None:
            self._warm(built)
        step = int(np.asarray(built.store.global_step))
        saver.begin(step, latest)
        loop.ready()
        last = until[1] if until[0] is None else step + until[0]
        training = loops.Training(built, iterator, loop, saver, self._config)
        step = training.run(step, last)
        loop.end()
        saver.end(step)

    # Evaluating.

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate the model of a checkpoint.

        Args:
            input_fn: as in `train`.
            steps: how many steps to make; default all of the data.
            hooks: `SessionRunHook`s.
            checkpoint_path: default the newest; without any, the model is evaluated as
                it is made.
            name: tells several evaluations of one model apart.

        Returns:
            The metrics by name, with the mean ``loss`` over the batches and the
            ``global_step`` of the checkpoint.
        """
        _check_steps(steps, None)
        _check_context("evaluate")
        loop = hooks_lib.Hooks(hooks)
        path = self._checkpoint_or_latest(checkpoint_path)
        with (
            self._built_for(ModeKeys.EVAL, path) as built,
            self._iterating(built, input_fn, ModeKeys.EVAL) as iterator,
        ):
            if not self._begin(built, iterator, loop, path):
                raise _no_step(1)
            self._restore(built, path)
            built.reset()
            loop.ready()
            loops.evaluate(built, itertools.islice(iterator, steps), loop)
            results = {n: v[()] for n, v in built.results().items()}
            step = int(np.asarray(built.store.global_step))
            loop.end()
        _LOG.info("Evaluation of %s: %s.", path, results)
        summaries = loops.Summaries(self._config, self.eval_dir(name))
        summaries.write(results, step)
        summaries.close()
        return {**results, "global_step": step}

    # Predicting.

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | str | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yield predictions, on one device of each worker, whatever the strategy.

        All of them are of one checkpoint, whatever the estimator does meanwhile.

        Args:
            input_fn: as in `train`; labels are ignored.
            predict_keys: which of the predictions; default all.
            hooks: `SessionRunHook`s.
            checkpoint_path: default the newest; without any, the model predicts as it
                is made.
            yield_single_examples: example by example, or batch by batch.

        Yields:
            What the `EstimatorSpec` has as predictions, as NumPy arrays.

        Raises:
            ValueError: none of the keys is there, or predictions differ in length.
        """
        _check_context("predict")
        loop = hooks_lib.Hooks(hooks)
        path = self._checkpoint_or_latest(checkpoint_path)
        with (
            self._built_for(ModeKeys.PREDICT, path) as built,
            self._iterating(built, input_fn, ModeKeys.PREDICT) as iterator,
        ):
            if not self._begin(built, iterator, loop, path):
                return
            self._restore(built, path)
            loop.ready()
            found = loops.predict(built, iterator, loop, predict_keys)
            for batch in found:
                yield from loops.examples(batch) if yield_single_examples else [batch]
            loop.end()

    # Exporting.

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], exporting.ServingInputReceiver],
        *,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> str:
        """Export the model of a checkpoint for `unisono.saved_model.load`.

        With several workers every one of them calls this, and one writes.

        Args:
            export_dir_base: a directory; the model goes to one below it, named after
                the time, by the clock of the first worker.
            serving_input_receiver_fn: says what the exported model takes; see
                `unisono.estimator.export.build_raw_serving_input_receiver_fn`.
            checkpoint_path: default the newest.

        Returns:
            The directory of the model. Its ``signatures`` have ``serving_default``,
            which returns the predictions, and one for each of `export_outputs`.

        Raises:
            ValueError: there is no checkpoint.
        """
        _check_context("export_saved_model")
        path = self._checkpoint_or_latest(checkpoint_path)
        if path is None:
            raise ValueError(f"Could not find trained model in {self.model_dir}.")
        receiver = serving_input_receiver_fn()
        with self._built_for(ModeKeys.PREDICT, path) as built:
            built.build(steps_lib.zeros(receiver.features), has_values=True)
            self._restore(built, path)
            return exporting.export(built, receiver, os.fspath(export_dir_base))

    # Parts.

    @contextlib.contextmanager
    def _built_for(self, mode: str, path: str | None) -> Iterator[Any]:
        """The model function for a mode, for a block; kept, so that steps compile once.

        It has variables, so nobody else gets it in the block: whoever asks meanwhile,
        say beside a prediction that has not ended, has another one made.

        Args:
            mode: one of `ModeKeys`.
            path: the checkpoint that its variables will be restored from; without one
                they must be new.
        """
        made = self._built.pop(mode, None)
        if made is None or (path is None and made.is_built):
            made = self._make(mode)
        try:
            yield made
        finally:
            self._built[mode] = made

    def _make(self, mode: str) -> Any:
        strategy = {
            ModeKeys.TRAIN: self._config.train_distribute,
            ModeKeys.EVAL: self._config.eval_distribute,
        }.get(mode)
        given = strategy or one_device.OneDeviceStrategy(devices.default_names()[0])
        call = functools.partial(
            calling.call_model_fn,
            self._model_fn,
            mode=mode,
            params=self._params,
            config=self._config,
            has_labels=mode != ModeKeys.PREDICT,
        )
        return _KINDS[mode](call, given)

    @contextlib.contextmanager
    def _iterating(self, built: Any, input_fn: Any, mode: str) -> Iterator[Any]:
        def dataset_fn(context: Any) -> Any:
            return calling.call_input_fn(
                input_fn, mode, self._params, self._config, context
            )

        dataset = built.strategy.distribute_datasets_from_function(dataset_fn)
        if mode == ModeKeys.TRAIN:
            # A replica without examples has no loss; metrics count it for nothing.
            dataset = dataset._with_whole_steps()
        iterator = iter(dataset)
        try:
            yield iterator
        finally:
            iterator.close()

    def _begin(
        self, built: Any, iterator: Any, loop: hooks_lib.Hooks, path: str | None
    ) -> bool:
        """Make the variables by a look at the first batch; False if there is none.

        The hooks of the program begin before, those of the model function after it.
        """
        loop.begin()
        try:
            first = iterator.pull()
        except StopIteration:
            return False
        built.build(first, has_values=path is not None)
        iterator.put_back(first)
        loop.add(built.hooks)
        return True

    def _checkpoint_or_latest(self, given: Any) -> str | None:
        if given is not None:
            return str(os.fspath(given))
        return checkpointing.agreed_latest(self.model_dir)

    def _restore(self, built: Any, path: str | None) -> None:
        if path is not None:
            checkpointing.restore(built, path, self.model_dir)
            return
        _LOG.info(
            "Could not find trained model in model_dir: %s, the model is as it was "
            "made.",
            self.model_dir,
        )
        self._warm(built)

    def _warm(self, built: Any) -> None:
        if self._warm_start is not None:
            checkpointing.warm_start(built.store, _checkpoint_at(self._warm_start))

    def __repr__(self) -> str:
        return f"<Estimator of {self._model_fn!r} in {self.model_dir}>"


def _with_directory(config: RunConfig, model_dir: Any) -> RunConfig:
    given = None if model_dir is None else os.fspath(model_dir)
    if given is not None and config.model_dir not in (None, given):
        raise ValueError(
            "`model_dir` are set both in constructor and `RunConfig`, but with "
            f"different values. In constructor: {given!r}, in `RunConfig`: "
            f"{config.model_dir!r}."
        )
    found = given or config.model_dir
    if found is None:
        if process_group.current().size > 1:
            raise ValueError(
                "Several workers need one `model_dir` that all of them see; give it "
                "to the Estimator or to its RunConfig."
            )
        found = tempfile.mkdtemp()
        _LOG.warning("Using temporary folder as model directory: %s", found)
    return config.replace(model_dir=found)


def _check_steps(steps: int | None, max_steps: int | None) -> None:
    if steps is not None and max_steps is not None:
        raise ValueError("Can not provide both steps and max_steps.")
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if value is not None and value <= 0:
            raise ValueError(f"Must specify {name} > 0, given: {value}.")


def _no_step(replicas: int) -> ValueError:
    """What to raise when the data ends before the first step.

    Args:
        replicas: how many must have a batch for a step.
    """
    if replicas == 1:
        return ValueError("The dataset of input_fn is empty: there is no batch.")
    return ValueError(
        "The dataset of input_fn has too few batches for one step of training: each of "
        f"the {replicas} replicas takes a batch of its own from it. Make smaller "
        "batches, or repeat the data."
    )


def _check_context(method: str) -> None:
    if current.has_strategy():
        raise RuntimeError(
            f"Estimator.{method} was called inside a strategy's scope. Call it "
            "outside; the strategy goes to RunConfig: train_distribute, "
            "eval_distribute."
        )


def _checkpoint_at(path: str) -> str:
    """A checkpoint, or the newest of a directory of them."""
    found = reading.latest_checkpoint(path) if os.path.isdir(path) else None
    return found or path


publish("unisono.estimator", Estimator)
