"""`MultiStepContext`: what several steps in a row hand to their caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unisono._src.foundation import ambient, options
from unisono._src.foundation.public_names import publish


class MultiStepContext:
    """Passed to every step of `experimental_run_steps_on_iterator`.

    >>> context = MultiStepContext()
    >>> context.set_non_tensor_output("note", "hello")
    >>> context.non_tensor_outputs
    {'note': 'hello'}
    """

    def __init__(self) -> None:
        self._last_step_outputs: dict[str, Any] = {}
        self._reduce_ops: dict[str, options.ReduceOp | None] = {}
        self._non_tensor_outputs: dict[str, Any] = {}
        self._run_op: Any = None

    @property
    def last_step_outputs(self) -> dict[str, Any]:
        """Outputs of the last step, by name; reduced where that was asked."""
        return self._last_step_outputs

    @property
    def non_tensor_outputs(self) -> dict[str, Any]:
        """Anything that steps wanted to hand out, by name."""
        return self._non_tensor_outputs

    @property
    def run_op(self) -> Any:
        """What the last step returned."""
        return self._run_op

    def set_last_step_output(
        self,
        name: str,
        output: Any,
        reduce_op: options.ReduceOp | str | None = None,
    ) -> None:
        """Hand out `output`; later steps replace what earlier ones set.

        Args:
            name: key in `last_step_outputs`.
            output: the value.
            reduce_op: how replicas' values are combined; required in replica context.
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

    def _set(self, strategy: Any, name: str, output: Any, reduce_op: Any) -> None:
        op = None if reduce_op is None else options.reduce_op(reduce_op)
        self._reduce_ops[name] = op
        if op is None:
            self._last_step_outputs[name] = output
        else:
            self._last_step_outputs[name] = strategy.reduce(op, output, axis=None)

    def set_non_tensor_output(self, name: str, output: Any) -> None:
        """Hand out anything; in replica context a tuple with one entry per replica."""
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.replica is None:
            self._non_tensor_outputs[name] = output
            return

        def merge(strategy: Any, value: Any) -> None:
            found = strategy.experimental_local_results(value)
            self._non_tensor_outputs[name] = found

        frame.replica.merge_call(merge, args=(output,))


def run_steps(
    fn: Callable[..., Any],
    iterator: Any,
    iterations: int,
    initial: dict[str, Any] | None,
) -> MultiStepContext:
    """Call ``fn(context, next(iterator))`` `iterations` times."""
    if iterations < 1:
        raise ValueError(f"Expected iterations >= 1, received {iterations}.")
    context = MultiStepContext()
    context._last_step_outputs.update(initial or {})
    take = getattr(iterator, "get_next", None) or (lambda: next(iterator))
    for step in range(iterations):
        try:
            inputs = take()
        except StopIteration:
            raise IndexError(
                f"The iterator ended after {step} of {iterations} steps; give more "
                "data or ask for fewer iterations."
            ) from None
        context._run_op = fn(context, inputs)
    return context


publish("unisono.distribute", MultiStepContext)
