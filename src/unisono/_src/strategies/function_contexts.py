"""The contexts that a program's functions get: of one value, and of several steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from unisono._src.foundation import ambient, options

if TYPE_CHECKING:
    # Named in signatures only: it imports this module.
    from unisono._src.strategies.base import Strategy


class ValueContext:
    """Tells a function for which replica it creates a value.

    `Strategy.experimental_distribute_values_from_function` passes one to its function.

    Args:
        replica_id_in_sync_group: the number of the replica, from 0.
        num_replicas_in_sync: the number of all replicas.

    >>> str(ValueContext(1, 4))
    'tf.distribute.ValueContext(replica id 1,  total replicas in sync: 4)'
    """

    def __init__(
        self, replica_id_in_sync_group: int = 0, num_replicas_in_sync: int = 1
    ) -> None:
        self._replica_id_in_sync_group = replica_id_in_sync_group
        self._num_replicas_in_sync = num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> int:
        """The number of the replica that the value is for, from 0.

        >>> ValueContext(1, 4).replica_id_in_sync_group
        1
        """
        return self._replica_id_in_sync_group

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of all replicas.

        >>> ValueContext(1, 4).num_replicas_in_sync
        4
        """
        return self._num_replicas_in_sync

    def __str__(self) -> str:
        return (
            "tf.distribute.ValueContext(replica id "
            f"{self._replica_id_in_sync_group},  total replicas in sync: "
            f"{self._num_replicas_in_sync})"
        )


class MultiStepContext:
    """Collects the outputs of the steps of `experimental_run_steps_on_iterator`.

    Each step gets this object as its first argument.

    >>> context = MultiStepContext()
    >>> context.set_non_tensor_output("note", "hello")
    >>> context.non_tensor_outputs
    {'note': 'hello'}
    """

    def __init__(self) -> None:
        self._last_step_outputs: dict[str, Any] = {}
        self._non_tensor_outputs: dict[str, Any] = {}
        self._run_op: Any = None

    @property
    def last_step_outputs(self) -> dict[str, Any]:
        """The outputs of the last step, by name, reduced if a reduce op was given.

        >>> context = MultiStepContext()
        >>> context.set_last_step_output("loss", 0.5)
        >>> context.last_step_outputs
        {'loss': 0.5}
        """
        return self._last_step_outputs

    @property
    def non_tensor_outputs(self) -> dict[str, Any]:
        """The outputs that are not arrays, by name.

        >>> context = MultiStepContext()
        >>> context.set_non_tensor_output("files", ["a", "b"])
        >>> context.non_tensor_outputs["files"]
        ['a', 'b']
        """
        return self._non_tensor_outputs

    @property
    def run_op(self) -> Any:
        """The value that the last step returned.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0"])
        >>> run_steps = strategy.extended.experimental_run_steps_on_iterator
        >>> run_steps(lambda context, x: 2 * x, iter([1, 2]), 2).run_op
        4
        """
        return self._run_op

    def set_last_step_output(
        self,
        name: str,
        output: object,
        reduce_op: options.ReduceOp | str | None = None,
    ) -> None:
        """Sets an output; later steps replace the outputs of earlier ones.

        Args:
            name: the key in `last_step_outputs`.
            output: the value.
            reduce_op: how the replicas' values are combined; required in replica
                context.

        Raises:
            AssertionError: there is no `reduce_op` in replica context.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> context = MultiStepContext()
        >>> def step():
        ...     replica = unisono.distribute.get_replica_context()
        ...     number = replica.replica_id_in_sync_group
        ...     context.set_last_step_output("sum", number, "SUM")
        >>> strategy.run(step)
        >>> int(context.last_step_outputs["sum"])
        1
        """
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.replica is None:
            self._set(frame.strategy, name, output, reduce_op)
            return
        if reduce_op is None:
            raise AssertionError(
                "reduce_op is required when set_last_step_output is called in replica "
                "context: pass ReduceOp.SUM or ReduceOp.MEAN."
            )
        frame.replica.merge_call(
            lambda strategy, value: self._set(strategy, name, value, reduce_op),
            args=(output,),
        )

    def _set(
        self,
        strategy: Strategy | None,
        name: str,
        output: object,
        reduce_op: options.ReduceOp | str | None,
    ) -> None:
        op = None if reduce_op is None else options.reduce_op(reduce_op)
        # Outside every strategy there is one replica, and nothing to reduce.
        if op is None or strategy is None:
            self._last_step_outputs[name] = output
        else:
            self._last_step_outputs[name] = strategy.reduce(op, output, axis=None)

    def set_non_tensor_output(self, name: str, output: object) -> None:
        """Sets an output that may be any object.

        Args:
            name: the key in `non_tensor_outputs`.
            output: the object; in replica context the output is a tuple with the
                objects of all replicas.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> context = MultiStepContext()
        >>> def step():
        ...     replica = unisono.distribute.get_replica_context()
        ...     name = f"replica {int(replica.replica_id_in_sync_group)}"
        ...     context.set_non_tensor_output("name", name)
        >>> strategy.run(step)
        >>> context.non_tensor_outputs["name"]
        ('replica 0', 'replica 1')
        """
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.replica is None:
            self._non_tensor_outputs[name] = output
            return

        def merge(strategy: Strategy, value: object) -> None:
            found = strategy.experimental_local_results(value)
            self._non_tensor_outputs[name] = found

        frame.replica.merge_call(merge, args=(output,))


def run_steps(
    fn: Callable[[MultiStepContext, Any], object],
    iterator: Iterator[object],
    iterations: int,
    initial: Mapping[str, object] | None,
) -> MultiStepContext:
    """Calls ``fn(context, next(iterator))`` several times.

    Args:
        fn: the step.
        iterator: the iterator that gives the inputs.
        iterations: the number of steps.
        initial: the outputs before the first step, by name.

    Raises:
        ValueError: `iterations` is less than 1.
        IndexError: the iterator ended too early.
    """
    if iterations < 1:
        raise ValueError(f"Expected iterations >= 1, received {iterations}.")
    context = MultiStepContext()
    context.last_step_outputs.update(initial or {})
    # Iterators of TensorFlow 1 have `get_next`; any other iterator serves as well.
    take = getattr(iterator, "get_next", None) or (lambda: next(iterator))
    for step in range(iterations):
        try:
            inputs = take()
        except StopIteration:
            raise IndexError(
                f"The iterator ended after {step} of {iterations} steps; give more "
                "data or ask for fewer iterations."
            ) from None
        # TensorFlow's class has no setter for it, so there is none to call here.
        context._run_op = fn(context, inputs)  # noqa: SLF001
    return context
