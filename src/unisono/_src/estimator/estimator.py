"""Defines `Estimator`, which trains, evaluates and uses a model function."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from unisono._src.estimator import (
    calling,
    checkpointing,
    compiled_steps as steps_lib,
    exporting,
    hooks as hooks_lib,
    loops,
)
from unisono._src.estimator.config import RunConfig
from unisono._src.estimator.estimator_spec import EstimatorSpec, ModeKeys
from unisono._src.estimator.hooks import CheckpointSaverListener, SessionRunHook
from unisono._src.foundation import errors
from unisono._src.machines import devices
from unisono._src.saving.checkpoint import reading
from unisono._src.strategies import current, one_device
from unisono._src.workers import process_group

if TYPE_CHECKING:
    # Named in signatures only: the input modules are loaded when a program reads data.
    from unisono._src.input.api.distributed_dataset import DistributedIterator
    from unisono._src.input.distribution.input_options import InputContext

_log = logging.getLogger("unisono")
_Steps = TypeVar("_Steps", bound=steps_lib.ModelSteps)


class Estimator:
    """Trains, evaluates and uses the model that a model function describes.

    The state is stored in checkpoints in `model_dir`: every call of `train`, `evaluate`
    or `predict` starts from the newest one. With several workers, each of them creates
    the estimator and calls the same methods.

    Args:
        model_fn: the model function. It is called as ``model_fn(features, labels, mode,
            params, config)``, with only the arguments that it takes, once per replica
            in replica context, while a step is compiled. It creates its variables and
            returns an `EstimatorSpec`. A variable with the same name is the same
            variable in every call.
        model_dir: the directory for checkpoints; by default the `model_dir` of
            `config`, or a new temporary directory.
        config: where and how to run; by default ``RunConfig()``.
        params: parameters that are passed to `model_fn` and to input functions.
        warm_start_from: a checkpoint, or a directory of checkpoints, from which the
            trainable variables get their first values.

    Raises:
        ValueError: `model_fn` does not take the right arguments, `config` is not a
            `RunConfig`, or `model_dir` and `config` name different directories.

    >>> import tempfile
    >>> import jax.numpy as jnp, numpy as np, optax
    >>> import unisono as uni
    >>> def model_fn(features, mode):  # Learns the mean of the features.
    ...     mean = uni.Variable(0.0, name="mean")
    ...     loss = jnp.mean((features - mean) ** 2)
    ...     train_op = uni.estimator.minimize(optax.sgd(0.5), loss)
    ...     return uni.estimator.EstimatorSpec(mode, features - mean, loss, train_op)
    >>> def input_fn():
    ...     return uni.data.Dataset.from_tensor_slices(np.float32([1, 3])).batch(2)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     estimator = uni.estimator.Estimator(model_fn, directory).train(input_fn)
    ...     print(estimator.get_variable_value("mean"))
    ...     print(estimator.evaluate(input_fn)["loss"])
    ...     print([float(x) for x in estimator.predict(input_fn)])
    2.0
    1.0
    [-1.0, 1.0]
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
        self._config = _config_with_directory(config or RunConfig(), model_dir)
        self._params = dict(params or {})
        self._warm_start = (
            None if warm_start_from is None else os.fspath(warm_start_from)
        )
        # By mode, the steps that no call is using now; see `_borrow_steps`.
        self._built: dict[type[steps_lib.ModelSteps], steps_lib.ModelSteps] = {}

    # Properties and checkpoints.

    @property
    def model_dir(self) -> str:
        """The directory for checkpoints."""
        assert self._config.model_dir is not None
        return self._config.model_dir

    @property
    def config(self) -> RunConfig:
        """The `RunConfig` of the estimator, with its `model_dir`.

        >>> import unisono as uni
        >>> estimator = uni.estimator.Estimator(lambda features: None, "runs")
        >>> estimator.config.model_dir, estimator.config.keep_checkpoint_max
        ('runs', 5)
        """
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters of the estimator.

        >>> import unisono as uni
        >>> def model_fn(features, params): ...
        >>> estimator = uni.estimator.Estimator(model_fn, "runs", params={"units": 8})
        >>> estimator.params
        {'units': 8}
        """
        return dict(self._params)

    @property
    def model_fn(self) -> Callable[[object, object, str, RunConfig], EstimatorSpec]:
        """The model function, with `params` already filled in.

        It is called as ``model_fn(features, labels, mode, config)``.

        >>> import unisono as uni
        >>> def model_fn(features, mode, params):
        ...     found = features * params["factor"]
        ...     return uni.estimator.EstimatorSpec(mode, predictions=found)
        >>> estimator = uni.estimator.Estimator(model_fn, "runs", params={"factor": 3})
        >>> estimator.model_fn(2, None, "infer", estimator.config).predictions
        6
        """

        def public_model_fn(
            features: object, labels: object, mode: str, config: RunConfig
        ) -> EstimatorSpec:
            batch = features if labels is None else (features, labels)
            params = self._params
            return calling.call_model_fn(
                self._model_fn, batch, mode, params, config, has_labels=True
            )

        return public_model_fn

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the directory for the summaries of an evaluation.

        Args:
            name: the name of the evaluation, as in `evaluate`.

        >>> import unisono as uni
        >>> estimator = uni.estimator.Estimator(lambda features: None, "runs")
        >>> estimator.eval_dir(), estimator.eval_dir("test")
        ('runs/eval', 'runs/eval_test')
        """
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest complete checkpoint, or None.

        >>> import tempfile
        >>> import unisono as uni
        >>> def model_fn(features, mode):
        ...     return uni.estimator.EstimatorSpec(mode, None, 0.0, lambda: None)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     estimator = uni.estimator.Estimator(model_fn, directory)
        ...     print(estimator.latest_checkpoint())
        ...     _ = estimator.train(lambda: uni.data.Dataset.range(3).batch(1))
        ...     print(estimator.latest_checkpoint() == f"{directory}/model.ckpt-3")
        None
        True
        """
        return reading.latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Returns the names of all variables in the newest checkpoint.

        Raises:
            ValueError: there is no checkpoint.

        >>> import tempfile
        >>> import unisono as uni
        >>> def model_fn(features, mode):
        ...     w = uni.Variable(0.0, name="w")
        ...     return uni.estimator.EstimatorSpec(mode, None, 0.0, lambda: None)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     estimator = uni.estimator.Estimator(model_fn, directory)
        ...     _ = estimator.train(lambda: uni.data.Dataset.range(3).batch(1))
        ...     print(estimator.get_variable_names())
        ['global_step', 'w']
        """
        listed = reading.list_variables(self._required_checkpoint())
        names = (checkpointing.name_of(key) for key, _ in listed)
        return sorted(name for name in names if name is not None)

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns the value of a variable in the newest checkpoint.

        Args:
            name: one of `get_variable_names`.

        Raises:
            NotFoundError: the checkpoint has no variable of this name.
            ValueError: there is no checkpoint.

        >>> import tempfile
        >>> import unisono as uni
        >>> def model_fn(features, mode):
        ...     w = uni.Variable(2.5, name="w")
        ...     return uni.estimator.EstimatorSpec(mode, None, 0.0, lambda: None)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     estimator = uni.estimator.Estimator(model_fn, directory)
        ...     _ = estimator.train(lambda: uni.data.Dataset.range(3).batch(1))
        ...     print(estimator.get_variable_value("w"))
        2.5
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
            raise ValueError(
                f"Could not find trained model in {self.model_dir}. Call train first, "
                "or give the Estimator the model_dir of a trained model."
            )
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
        """Trains the model until the data ends or for a number of steps.

        Training starts from the newest checkpoint in `model_dir`, if there is one. It
        saves a checkpoint before the very first step, at the intervals that `config`
        sets, and after the last step.

        Args:
            input_fn: returns a dataset of ``(features, labels)`` or of features. It is
                called once on each worker. Each replica takes its own batch from the
                dataset, so use the batch size of one replica. It may take `params`,
                `config`, `mode` and `input_context`, an `InputContext` for sharding.
            hooks: `SessionRunHook`s to call around the steps.
            steps: the number of steps to train, counted from where training starts.
            max_steps: the global step at which to stop. If the newest checkpoint has
                reached it, `train` does nothing.
            saving_listeners: `CheckpointSaverListener`s to call around each save.

        Returns:
            The estimator.

        Raises:
            ValueError: `steps` and `max_steps` are both given, one is not positive, or
                the data has fewer batches than there are replicas.
            NanLossDuringTrainingError: the loss is not finite.
            RuntimeError: called inside a strategy's scope.

        >>> import tempfile
        >>> import optax, unisono as uni
        >>> def model_fn(features, mode):
        ...     loss = uni.Variable(0.0, name="w") * features.sum()
        ...     train_op = uni.estimator.minimize(optax.sgd(1.0), loss)
        ...     return uni.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     estimator = uni.estimator.Estimator(model_fn, directory)
        ...     _ = estimator.train(lambda: uni.data.Dataset.range(9).batch(2), steps=2)
        ...     print(estimator.get_variable_value("w"))  # -(0 + 1) - (2 + 3)
        -6.0
        """
        _check_steps(steps, max_steps)
        _check_context("train")
        loop = hooks_lib.Hooks(hooks)
        # Asked once: all that follows is about this
        # checkpoint, even if another is saved.
        latest = checkpointing.find_latest_of_chief(self.model_dir)
        if max_steps is not None and checkpointing.step_of(latest) >= max_steps:
            _log.info("Skipping training since max_steps has already been reached.")
            return self
        last = math.inf if max_steps is None else max_steps
        with self._borrow_steps(steps_lib.Training, latest) as built:
            saver = checkpointing.Saver(built.store, self._config, saving_listeners)
            with self._open_iterator(built, input_fn) as iterator:
                self._train(built, iterator, loop, saver, latest, (steps, last))
        return self

    def _train(
        self,
        built: steps_lib.Training,
        iterator: DistributedIterator,
        loop: hooks_lib.Hooks,
        saver: checkpointing.Saver,
        latest: str | None,
        until: tuple[int | None, float],
    ) -> None:
        """Makes the steps of `train`; `until` has their number and the last step."""
        # In this order: the variables are made, restored and saved for the first time
        # before `after_create_session` shows them to hooks.
        if not self._begin(built, iterator, loop, latest):
            raise _too_few_batches_error(built.strategy.num_replicas_in_sync)
        saver.restore(latest, iterator)
        if latest is None:
            self._warm_start_variables(built)
        step = int(np.asarray(built.store.global_step))
        saver.begin(step, latest)
        loop.after_create_session()
        # `steps` counts from the restored step, `max_steps` is a global one.
        last = until[1] if until[0] is None else step + until[0]
        training = loops.TrainingLoop(built, iterator, loop, saver, self._config)
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
        """Evaluates the model of a checkpoint.

        Args:
            input_fn: as in `train`.
            steps: the number of steps; by default evaluates all of the data.
            hooks: `SessionRunHook`s to call around the steps.
            checkpoint_path: the checkpoint; by default the newest. If there is none,
                the model is evaluated with its initial values.
            name: the name of the evaluation, to distinguish several of one model.

        Returns:
            A dict of the metrics by name. It also has the mean ``loss`` over the
            batches and the ``global_step`` of the checkpoint.

        Raises:
            ValueError: `steps` is not positive, or the data has no batch.
            RuntimeError: called inside a strategy's scope.

        >>> import tempfile
        >>> import unisono as uni
        >>> def model_fn(features, mode):
        ...     ops = {"mean": features}
        ...     return uni.estimator.EstimatorSpec(mode, loss=0.5, eval_metric_ops=ops)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     estimator = uni.estimator.Estimator(model_fn, directory)
        ...     found = estimator.evaluate(lambda: uni.data.Dataset.range(5).batch(2))
        >>> {name: float(value) for name, value in found.items()}
        {'loss': 0.5, 'mean': 2.0, 'global_step': 0.0}
        """
        _check_steps(steps, None)
        _check_context("evaluate")
        loop = hooks_lib.Hooks(hooks)
        path = self._checkpoint_or_latest(checkpoint_path)
        with (
            self._borrow_steps(steps_lib.Evaluation, path) as built,
            self._open_iterator(built, input_fn) as iterator,
        ):
            if not self._begin(built, iterator, loop, path):
                raise _too_few_batches_error(1)
            self._restore(built, path)
            built.reset()
            loop.after_create_session()
            loops.evaluate(built, itertools.islice(iterator, steps), loop)
            results = {n: v[()] for n, v in built.results().items()}
            step = int(np.asarray(built.store.global_step))
            loop.end()
        _log.info("Evaluation of %s: %s.", path, results)
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
        """Yields the predictions of the model of a checkpoint.

        Each worker predicts on one of its devices, under any strategy. All predictions
        come from one checkpoint, even if the estimator trains in the meantime.

        Args:
            input_fn: as in `train`; labels are ignored.
            predict_keys: the names of the predictions to yield; by default all.
            hooks: `SessionRunHook`s to call around the steps.
            checkpoint_path: the checkpoint; by default the newest. If there is none,
                the model predicts with its initial values.
            yield_single_examples: whether to yield the prediction for one example at a
                time, instead of for a batch.

        Yields:
            The predictions of the `EstimatorSpec`, as NumPy arrays.

        Raises:
            ValueError: the predictions contain none of `predict_keys`, or they have
                different lengths and `yield_single_examples` is True.
            RuntimeError: called inside a strategy's scope.

        >>> import tempfile
        >>> import unisono as uni
        >>> def model_fn(features, mode):
        ...     found = {"double": 2 * features, "square": features**2}
        ...     return uni.estimator.EstimatorSpec(mode, predictions=found)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     estimator = uni.estimator.Estimator(model_fn, directory)
        ...     input_fn = lambda: uni.data.Dataset.range(4).batch(2)
        ...     [int(x["square"]) for x in estimator.predict(input_fn, ["square"])]
        [0, 1, 4, 9]
        """
        _check_context("predict")
        loop = hooks_lib.Hooks(hooks)
        path = self._checkpoint_or_latest(checkpoint_path)
        with (
            self._borrow_steps(steps_lib.Prediction, path) as built,
            self._open_iterator(built, input_fn) as iterator,
        ):
            if not self._begin(built, iterator, loop, path):
                return
            self._restore(built, path)
            loop.after_create_session()
            found = loops.predict(built, iterator, loop, predict_keys)
            for batch in found:
                yield from (
                    loops.split_examples(batch) if yield_single_examples else [batch]
                )
            loop.end()

    # Exporting.

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: Callable[[], exporting.ServingInputReceiver],
        *,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> str:
        """Exports the model of a checkpoint for `unisono.saved_model.load`.

        With several workers, all of them must call this, and the first one writes.

        Args:
            export_dir_base: the directory of all exports. The model is written to a new
                directory in it, named after the current time on the first worker.
            serving_input_receiver_fn: returns the inputs of the exported model; see
                `unisono.estimator.export.build_raw_serving_input_receiver_fn`.
            checkpoint_path: the checkpoint; by default the newest.

        Returns:
            The directory of the model. The ``signatures`` of the model contain
            ``serving_default``, which returns the predictions, and one signature for
            each of `export_outputs`.

        Raises:
            ValueError: there is no checkpoint.
            RuntimeError: called inside a strategy's scope.

        >>> import tempfile
        >>> import numpy as np, unisono as uni
        >>> export = uni.estimator.export
        >>> receiver_fn = export.build_raw_serving_input_receiver_fn(np.float32([0]))
        >>> def model_fn(features, mode):
        ...     found = {"double": 2 * features}
        ...     return uni.estimator.EstimatorSpec(mode, found, 0.0, lambda: None)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     estimator = uni.estimator.Estimator(model_fn, directory)
        ...     _ = estimator.train(lambda: uni.data.Dataset.range(2).batch(1))
        ...     path = estimator.export_saved_model(f"{directory}/export", receiver_fn)
        ...     serve = uni.saved_model.load(path).signatures["serving_default"]
        ...     print(serve(np.float32([1, 4]))["double"])
        [2. 8.]
        """
        _check_context("export_saved_model")
        path = self._checkpoint_or_latest(checkpoint_path)
        if path is None:
            raise ValueError(
                f"Could not find trained model in {self.model_dir}. Call train first, "
                "or pass checkpoint_path."
            )
        receiver = serving_input_receiver_fn()
        with self._borrow_steps(steps_lib.Prediction, path) as built:
            # Zeros will do: the model function is only traced.
            built.build(steps_lib.zero_batch(receiver.features), has_values=True)
            self._restore(built, path)
            return exporting.export(built, receiver, os.fspath(export_dir_base))

    # Parts of the methods above.

    @contextlib.contextmanager
    def _borrow_steps(self, kind: type[_Steps], path: str | None) -> Iterator[_Steps]:
        """Yields the `ModelSteps` of a mode for the use of one block only.

        The estimator keeps them afterwards, so that steps compile once. They hold
        variables, so two calls cannot share them: a call that comes during the block,
        for example while a prediction is still open, gets newly made ones.

        Args:
            kind: the class of the steps, which has their mode.
            path: the checkpoint from which the variables will be restored; if None, the
                variables must have their initial values.
        """
        # Taken out for the time of the block, so that another call does not find them.
        made = self._built.pop(kind, None)
        if not isinstance(made, kind) or (path is None and made.is_built):
            # Used ones have trained values, and there is no
            # checkpoint to reset them from.
            made = self._make_steps(kind)
        try:
            yield made
        finally:
            self._built[kind] = made

    def _make_steps(self, kind: type[_Steps]) -> _Steps:
        """Returns new `ModelSteps` for a mode, under the strategy for that mode."""
        mode = kind.mode
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
        return kind(call, given)

    @contextlib.contextmanager
    def _open_iterator(
        self, built: steps_lib.ModelSteps, input_fn: object
    ) -> Iterator[DistributedIterator]:
        """Yields an iterator over the batches of all replicas, and closes it."""

        def dataset_fn(context: InputContext) -> object:
            return calling.call_input_fn(
                input_fn, built.mode, self._params, self._config, context
            )

        dataset: Any = built.strategy.distribute_datasets_from_function(dataset_fn)
        if built.mode == ModeKeys.TRAIN:
            # A replica without examples has no loss, so training ends before such a
            # step. Evaluation need not: metrics skip an empty batch.
            dataset = dataset.with_whole_steps()
        iterator = iter(dataset)
        try:
            yield iterator
        finally:
            iterator.close()

    def _begin(
        self,
        built: steps_lib.ModelSteps,
        iterator: DistributedIterator,
        loop: hooks_lib.Hooks,
        path: str | None,
    ) -> bool:
        """Makes the variables for the first batch, and lets the hooks begin.

        The hooks of the program begin before the variables are made, those of the model
        function after that.

        Returns:
            Whether there is a first batch.
        """
        loop.begin()
        try:
            first = iterator.pull()
        except StopIteration:
            return False
        # The batch goes back, so that the first step and the position count it once.
        built.build(first, has_values=path is not None)
        iterator.put_back(first)
        loop.add(built.hooks)
        return True

    def _checkpoint_or_latest(self, given: str | os.PathLike[str] | None) -> str | None:
        """Returns a given path, or that of the newest checkpoint, as a string."""
        if given is not None:
            return os.fspath(given)
        return checkpointing.find_latest_of_chief(self.model_dir)

    def _restore(self, built: steps_lib.ModelSteps, path: str | None) -> None:
        """Restores a checkpoint; without one, warm-starts the initial values."""
        if path is not None:
            checkpointing.restore(built, path, self.model_dir)
            return
        _log.info(
            "Could not find trained model in model_dir: %s, the model has its initial "
            "values.",
            self.model_dir,
        )
        self._warm_start_variables(built)

    def _warm_start_variables(self, built: steps_lib.ModelSteps) -> None:
        if self._warm_start is not None:
            checkpointing.warm_start(built.store, _checkpoint_at(self._warm_start))

    def __repr__(self) -> str:
        return f"<Estimator of {self._model_fn!r} in {self.model_dir}>"


def _config_with_directory(
    config: RunConfig, model_dir: str | os.PathLike[str] | None
) -> RunConfig:
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
                "Several workers need one `model_dir` that all of them can read and "
                "write; pass it to the Estimator or to its RunConfig."
            )
        found = tempfile.mkdtemp()
        _log.warning("Using temporary folder as model directory: %s", found)
    return config.replace(model_dir=found)


def _check_steps(steps: int | None, max_steps: int | None) -> None:
    if steps is not None and max_steps is not None:
        raise ValueError("Can not provide both steps and max_steps.")
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if value is not None and value <= 0:
            raise ValueError(f"Must specify {name} > 0, given: {value}.")


def _too_few_batches_error(replicas: int) -> ValueError:
    """Returns the error for data that ends before the first step.

    Args:
        replicas: the number of replicas that need a batch for a step.
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
            "outside the scope, and pass the strategy to RunConfig as train_distribute "
            "or eval_distribute."
        )


def _checkpoint_at(path: str) -> str:
    """Returns the newest checkpoint of a directory, or the path of a checkpoint."""
    found = reading.latest_checkpoint(path) if os.path.isdir(path) else None
    return found or path
