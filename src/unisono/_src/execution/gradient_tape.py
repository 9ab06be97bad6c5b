"""`GradientTape`: gradients of code that runs in a block, as in TensorFlow."""

from __future__ import annotations

import contextlib
import enum
import logging
import math
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, final, overload

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import equations, pullbacks
from unisono._src.foundation import ambient, library_hooks, nest
from unisono._src.state import (
    frames,
    sharded_variable,
    trace_versions,
    variables,
)
from unisono._src.values import array_operators, jax_tapes
from unisono._src.values.jax_tapes import Recording

_log = logging.getLogger("unisono")


class UnconnectedGradients(enum.Enum):
    """Selects the gradient if the target does not depend on the source.

    Attributes:
        NONE: None.
        ZERO: zeros, of the shape and type of the source.

    >>> import unisono
    >>> v, w = unisono.Variable(3.0), unisono.Variable(2.0)
    >>> with unisono.GradientTape() as tape:
    ...     y = v * v
    >>> zero = unisono.UnconnectedGradients.ZERO
    >>> float(tape.gradient(y, w, unconnected_gradients=zero))
    0.0
    """

    NONE = "none"
    ZERO = "zero"


@final
class GradientTape:
    """Records the operations of a ``with`` block, to differentiate them afterwards.

    A tape watches the trainable variables that the block reads, and the arrays that you
    pass to `watch`. It works eagerly, in `unisono.function`, and in the function that
    `Strategy.run` calls, where each replica has its own tape. In replica context, the
    gradients are those of the replica; they are not reduced.

    Args:
        persistent: whether `gradient` and `jacobian` can be called more than once.
        watch_accessed_variables: whether the tape watches trainable variables when they
            are read; if not, it watches only what you pass to `watch`.

    Raises:
        NotImplementedError: this version of JAX lacks functions that a tape needs.

    >>> import unisono
    >>> v = unisono.Variable(3.0)
    >>> with unisono.GradientTape() as tape:
    ...     y = v * v
    >>> float(tape.gradient(y, v))
    6.0

    The tape records an array after you call `watch`:

    >>> x = unisono.constant(3.0)
    >>> with unisono.GradientTape() as tape:
    ...     tape.watch(x)
    ...     y = x * x
    >>> float(y), float(tape.gradient(y, x))
    (9.0, 6.0)

    A tape inside another one computes second derivatives:

    >>> with unisono.GradientTape() as outer:
    ...     with unisono.GradientTape() as inner:
    ...         y = v * v * v
    ...     slope = inner.gradient(y, v)
    >>> float(slope), float(outer.gradient(slope, v))
    (27.0, 18.0)

    A step on two replicas:

    >>> import optax
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     w = unisono.Variable(1.0)
    ...     optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [w])
    >>> @unisono.function
    ... def step(x):
    ...     def replica_fn(x):
    ...         with unisono.GradientTape() as tape:
    ...             loss = w * x
    ...         optimizer.apply_gradients([(tape.gradient(loss, w), w)])
    ...         return loss
    ...
    ...     return strategy.run(replica_fn, args=(x,))
    >>> losses = step(unisono.distribute.PerReplica([1.0, 3.0]))
    >>> [float(x) for x in losses.values], round(float(w.numpy()), 3)
    ([1.0, 3.0], 0.6)
    """

    def __init__(
        self, persistent: bool = False, watch_accessed_variables: bool = True
    ) -> None:
        if jax_tapes.MISSING:
            names = ", ".join(jax_tapes.MISSING)
            raise NotImplementedError(
                f"GradientTape needs {names}, which JAX {jax.__version__} "
                "does not have. Use unisono.value_and_grad, or a version of JAX that "
                "this version of unisono was tested with."
            )
        self._persistent = persistent
        self._watch_accessed_variables = watch_accessed_variables
        self._recording: Recording | None = None
        self._is_open = False
        # The frame of the code around the block, and the one that the block began with.
        self._frames: tuple[ambient.Frame, ambient.Frame] | None = None
        self._watched: tuple[Any, ...] = ()
        self._libraries: contextlib.ExitStack | None = None

    def __repr__(self) -> str:
        state = "recording" if self._is_open else "stopped"
        return f"<GradientTape {state}, persistent={self._persistent}>"

    # The block.

    def __enter__(self) -> GradientTape:
        """Starts or continues recording.

        Raises:
            ValueError: the tape is recording already.
        """
        if self._is_open:
            raise ValueError(
                "Tape is still recording, This can happen if you try to re-enter an "
                "already-active tape."
            )
        outer = ambient.current()
        if self._recording is None:
            self._recording = Recording(outer.tape, self._watch_accessed_variables)
        self._begin(self._recording, outer)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops recording at the end of the block."""
        if self._is_open:
            self._end()

    def _begin(self, recording: Recording, outer: ambient.Frame) -> None:
        """Make a recording current."""
        # The recording first: opening may raise, and nothing else has changed by then.
        recording.open()
        self._libraries = library_hooks.enter_tapes()
        inner = outer._replace(tape=recording)
        self._frames = outer, inner
        ambient.swap(inner)
        if outer.port is not None:
            outer.port.has_tapes = True
        self._is_open = True
        _separate_versions()

    def _end(self) -> None:
        """Make the code around the block current."""
        assert self._recording is not None and self._frames is not None
        self._recording.close()
        self._is_open = False
        if self._libraries is not None:
            self._libraries.close()
        outer, inner = self._frames
        now = ambient.current()
        # The frame itself if it can be: `function` recognizes the outermost one.
        ambient.swap(outer if now is inner else now._replace(tape=outer.tape))
        _separate_versions()

    @contextlib.contextmanager
    def stop_recording(self) -> Iterator[None]:
        """Runs a block that the tape does not record.

        Raises:
            RuntimeError: the tape was never entered.
            ValueError: the tape is not recording.

        >>> import unisono
        >>> v = unisono.Variable(3.0)
        >>> with unisono.GradientTape() as tape:
        ...     y = v * v
        ...     with tape.stop_recording():
        ...         factor = y + v
        ...     z = y * factor
        >>> float(tape.gradient(z, v))  # 2 * v * factor
        72.0
        """
        if self._recording is None:
            raise RuntimeError(
                "Trying to stop recording a tape which is not recording."
            )
        recording = self._check_recording()
        recording.pause()
        _separate_versions()
        try:
            yield
        finally:
            # A tape that is not persistent ends with the first gradient.
            if self._recording is recording:
                recording.resume()
            _separate_versions()

    def reset(self) -> None:
        """Deletes everything that was recorded, and continues recording.

        Raises:
            ValueError: the tape is not recording.

        >>> import unisono
        >>> v = unisono.Variable(3.0)
        >>> with unisono.GradientTape() as tape:
        ...     y = v * v
        ...     tape.reset()
        ...     z = v * 2.0
        >>> float(tape.gradient(z, v))
        2.0
        """
        # A new trace in the place of the old one, whose arrays are freed.
        old = self._check_recording()
        self._end()
        old.release()
        self._recording = Recording(old.outer, self._watch_accessed_variables)
        self._begin(self._recording, ambient.current())

    def _check_recording(self) -> Recording:
        """Return the recording, which must be on."""
        if self._recording is None or not self._recording.is_recording:
            raise ValueError("Tape is not recording.")
        return self._recording

    # What is followed.

    def watch(self, tensor: object) -> None:
        """Starts to watch an array or a variable.

        Results that were computed from it earlier are not watched.

        Args:
            tensor: an array, a variable, or a nested structure of these.

        Raises:
            RuntimeError: the tape was never entered.
            ValueError: a value is neither an array of JAX nor a variable, but for
                example a number or a NumPy array.

        >>> import unisono
        >>> v = unisono.Variable(3.0, trainable=False)
        >>> with unisono.GradientTape() as tape:
        ...     tape.watch(v)
        ...     y = v * v
        >>> float(tape.gradient(y, v))
        6.0
        """
        if self._recording is None:
            raise RuntimeError(
                "Trying to watch with a tape which is not recording. Call watch inside "
                "`with unisono.GradientTape() as tape:`."
            )
        found = [pullbacks.find_variable(x) for x in nest.leaves(tensor)]
        for x in found:
            if isinstance(x, sharded_variable.ShardedVariable):
                # For its rows; for its values the parts are followed.
                self._recording.add_key(x, _placeholder_of(x), x)
        for x in sharded_variable.parts(found):
            self._watch(self._recording, x)

    def _watch(self, recording: Recording, x: Any) -> None:
        """Follow one array or variable."""
        is_variable = isinstance(x, pullbacks.VARIABLES)
        if not is_variable and not isinstance(x, jax.Array):
            raise ValueError(
                f"Passed in object {x} of type {type(x).__name__!r}, not tf.Tensor or "
                "tf.Variable or ExtensionType. A tape follows an array by its "
                "identity, which numbers and NumPy's arrays lose when they are used. "
                "Write x = unisono.constant(x), and use that array in watch and in the "
                "computation."
            )
        if not jax_tapes.is_float(x):
            _log.warning(
                "The dtype of the watched tensor must be floating (e.g. tf.float32), "
                "got %s: it has no gradient.",
                x.dtype,
            )
        elif is_variable:
            # Only the shape is needed, so no tape follows this read.
            with ambient.push(tape=None):
                like = _placeholder_of(x) if _is_on_server(x) else pullbacks.read(x)
            owner = x.owner if isinstance(x, library_hooks.LibraryVariable) else x
            recording.add_key(pullbacks.key_of(x), like, owner)
        else:
            recording.watch(x)

    def watched_variables(self) -> tuple[Any, ...]:
        """Returns the variables that the tape watches, in the order of their first use.

        They can be variables of unisono, Keras and Flax.

        >>> import unisono
        >>> v = unisono.Variable(3.0, name="v")
        >>> with unisono.GradientTape() as tape:
        ...     y = v * v
        >>> [x.name for x in tape.watched_variables()]
        ['v:0']
        """
        if self._recording is not None:
            owners = self._recording.owners.values()
            return tuple(map(array_operators.find_library_variable, owners))
        return self._watched

    # Gradients.

    @overload
    def gradient(
        self,
        target: object,
        sources: jax.Array | variables.Variable,
        output_gradients: object = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> jax.Array | None: ...

    @overload
    def gradient(
        self,
        target: object,
        sources: list[Any],
        output_gradients: object = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> list[jax.Array | None]: ...

    @overload
    def gradient(
        self,
        target: object,
        sources: object,
        output_gradients: object = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> Any: ...

    def gradient(
        self,
        target: object,
        sources: object,
        output_gradients: object = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> Any:
        """Returns the gradients of the sum of all elements of `target`.

        Args:
            target: an array or variable, or a nested structure of these.
            sources: variables and arrays to differentiate with respect to, or a nested
                structure of these. Variables can be those of unisono, Keras and Flax.
                An array must be watched by the tape, or computed in the block.
            output_gradients: factors for the elements of `target`, in the same
                structure; None for ones.
            unconnected_gradients: what to return for a source that `target` does not
                depend on; the strings "none" and "zero" are accepted too.

        Returns:
            A gradient for each source, in the structure of `sources`: an array, or None
            if `target` does not depend on the source.

        Raises:
            RuntimeError: a tape that is not persistent has already computed a gradient;
                or a persistent tape, or a tape inside it, is still recording.
            TypeError: `target` or a source is neither an array nor a variable.
            ValueError: `target` was computed from a source before it was watched, or
                `unconnected_gradients` is unknown.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0])
        >>> with unisono.GradientTape(persistent=True) as tape:
        ...     y = v * v
        ...     z = y * y
        >>> tape.gradient(z, v).tolist(), tape.gradient(z, {"y": y})["y"].tolist()
        ([4.0, 32.0], [2.0, 8.0])
        >>> tape.gradient(y, v, output_gradients=jnp.array([1.0, 10.0])).tolist()
        [2.0, 40.0]
        """
        recording = self._take_recording()
        rule = _parse_unconnected(unconnected_gradients)
        if target is None:
            raise TypeError(
                "Argument `target` should be a list or nested structure of Tensors, "
                "Variables or CompositeTensors to be differentiated, but received None."
            )
        targets = [pullbacks.find_operand(x, "target") for x in nest.leaves(target)]
        leaves = list(nest.leaves(sources))
        wanted = [
            pullbacks.find_operand(x, "sources") for x in sharded_variable.parts(leaves)
        ]
        factors = pullbacks.find_factors(targets, output_gradients)
        # Rows that were looked up are sources of their own.
        every = [*wanted, *pullbacks.find_lookups(recording, leaves)]
        pull, given = pullbacks.differentiate(recording, targets, every)
        found = pull([factors[i] for i in given])
        count = len(wanted)
        pullbacks.check_late(recording, wanted, found[:count])
        filled = pullbacks.join_rows(recording, leaves, found[:count], found[count:])
        self._finish(recording)
        return _rebuild(sources, _fill(filled, leaves, rule))

    @overload
    def jacobian(
        self,
        target: object,
        sources: jax.Array | variables.Variable,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> jax.Array | None: ...

    @overload
    def jacobian(
        self,
        target: object,
        sources: list[Any],
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> list[jax.Array | None]: ...

    @overload
    def jacobian(
        self,
        target: object,
        sources: object,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any: ...

    def jacobian(
        self,
        target: object,
        sources: object,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Returns the derivatives of each element of `target`.

        Args:
            target: an array.
            sources: as for `gradient`.
            unconnected_gradients: as for `gradient`.
            parallel_iterations: accepted, no effect.
            experimental_use_pfor: accepted, no effect.

        Returns:
            An array or None for each source, in the structure of `sources`. The array
            has the axes of `target`, followed by those of the source.

        Raises:
            RuntimeError: as for `gradient`; the same holds for `TypeError` and
                `ValueError`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0])
        >>> with unisono.GradientTape() as tape:
        ...     y = v * v
        >>> tape.jacobian(y, v).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
        """
        recording = self._take_recording()
        rule = _parse_unconnected(unconnected_gradients)
        result = pullbacks.find_operand(target, "target")
        whole = pullbacks.value_of(result)
        wanted = [pullbacks.find_operand(x, "sources") for x in nest.leaves(sources)]
        pull, given = pullbacks.differentiate(recording, [result], wanted)
        found: list[Any] = [None] * len(wanted)
        if given:
            # One pullback for each number of the target, all at once.
            rows = jnp.eye(whole.size, dtype=whole.dtype)
            rows = rows.reshape(whole.size, *whole.shape)
            found = jax.vmap(lambda row: pull([row]))(rows)
        shaped = [
            None if g is None else g.reshape(*whole.shape, *g.shape[1:]) for g in found
        ]
        pullbacks.check_late(recording, wanted, shaped)
        self._finish(recording)
        return _rebuild(sources, _fill(shaped, wanted, rule, whole.shape))

    def batch_jacobian(
        self,
        target: object,
        source: object,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> jax.Array:
        """Returns the derivatives of each example of `target` by that of `source`.

        Example `i` of `target` must depend only on example `i` of `source`.

        Args:
            target: an array whose first axis is that of the examples.
            source: an array or variable with the same number of examples.
            unconnected_gradients: as for `gradient`. As in TensorFlow, the result is
                zeros if `target` does not depend on `source`.
            parallel_iterations: accepted, no effect.
            experimental_use_pfor: accepted, no effect.

        Returns:
            An array with the axes of `target`, followed by those of an example of
            `source`.

        Raises:
            RuntimeError: as for `gradient`; the same holds for `TypeError`.
            ValueError: an array has fewer than two axes, or the numbers of examples
                differ.

        >>> import unisono
        >>> x = unisono.constant([[1.0, 2.0], [3.0, 4.0]])
        >>> with unisono.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> tape.batch_jacobian(y, x).tolist()
        [[[2.0, 0.0], [0.0, 4.0]], [[6.0, 0.0], [0.0, 8.0]]]
        """
        recording = self._take_recording()
        _parse_unconnected(unconnected_gradients)
        result = pullbacks.find_operand(target, "target")
        wanted = pullbacks.find_operand(source, "source")
        whole, given = pullbacks.value_of(result), pullbacks.value_of(wanted)
        _check_batches(whole.shape, given.shape)
        pull, is_connected = pullbacks.differentiate(recording, [result], [wanted])
        shape = (*whole.shape, *given.shape[1:])
        found = jnp.zeros(shape, whole.dtype)
        if is_connected:
            # One factor for each number of an example picks it in all examples.
            size = math.prod(whole.shape[1:])
            rows = jnp.eye(size, dtype=whole.dtype).reshape(size, 1, *whole.shape[1:])
            rows = jnp.broadcast_to(rows, (size, *whole.shape))
            (slopes,) = jax.vmap(lambda row: pull([row]))(rows)
            pullbacks.check_late(recording, [wanted], [slopes])
            if slopes is not None:
                found = jnp.moveaxis(slopes, 0, 1).reshape(shape)
        self._finish(recording)
        return found

    def _take_recording(self) -> Recording:
        """Return the recording, which must be complete."""
        if self._recording is None:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of "
                "gradients (or jacobians)"
            )
        recording, inner = self._recording, ambient.current().tape
        if inner and _is_around(recording, inner) and inner.is_recording:
            raise RuntimeError(
                "The gradient of an outer GradientTape was asked for inside an inner "
                "one, which could not follow it. Leave the inner block first, or "
                "exchange the two tapes."
            )
        if self._is_open and recording.is_recording:
            if self._persistent:
                raise RuntimeError(
                    "The gradient of a persistent GradientTape was asked for inside "
                    "its own block, which cannot follow it. Leave the block first; for "
                    "second derivatives put a tape inside another one."
                )
            # A tape that is not persistent ends here, so that it need not follow its
            # own gradient. `_finish` closes the block.
            recording.pause()
        return recording

    def _finish(self, recording: Recording) -> None:
        """Free what the gradient needed, unless there may be another one."""
        if self._persistent:
            return
        # Asked for after the gradient, too, when the recording is gone.
        self._watched = self.watched_variables()
        if self._is_open:
            self._end()
        self._recording = None
        recording.release()


def differentiate_loss(
    loss: object,
    var_list: Any,
    tape: GradientTape | None,
    factor: jax.Array | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return the gradients of a loss, and the variables that they are for.

    Args:
        loss: a number that `tape` has recorded, or a function that computes it.
        var_list: a variable, a list of some, or a function that returns one.
        tape: the tape; a new one follows a function by default.
        factor: the gradient that the loss starts with; one by default.
    """
    if tape is None and not callable(loss):
        raise ValueError(
            "`tape` is required when a `Tensor` loss is passed. Received: "
            f"loss={loss}, tape={tape}. Compute the loss inside `with "
            "unisono.GradientTape() as tape:`, or pass a function that computes it."
        )
    tape = GradientTape() if tape is None else tape
    if callable(loss):
        with tape:
            loss = loss()
    found = var_list() if callable(var_list) else var_list
    wanted = [found] if isinstance(found, variables.Variable) else list(found)
    return tape.gradient(loss, wanted, factor), wanted


def _placeholder_of(variable: equations.HasShape) -> np.ndarray:
    """Return an array of the shape and type of a variable, which takes no memory."""
    return np.broadcast_to(np.zeros((), variable.dtype), variable.shape)


def _is_on_server(x: object) -> bool:
    """Whether a parameter server holds the value of a variable."""
    return isinstance(x, variables.Variable) and x.state_cell.home is not None


def _separate_versions() -> None:
    """Keep JAX from reusing traces of other code in the block (decision 0008)."""
    state = frames.frame()
    if state.is_compiled:
        state.versions.advance()
    else:
        trace_versions.EAGER.note_change()


def _is_around(recording: Recording, inner: Recording) -> bool:
    """Whether `recording` is one of those around `inner`."""
    around = inner.outer
    while around is not None and around is not recording:
        around = around.outer
    return around is not None


def _check_batches(target: tuple[int, ...], source: tuple[int, ...]) -> None:
    """Raise `ValueError` unless both shapes have the same number of examples."""
    for shape in (target, source):
        if len(shape) < 2:
            raise ValueError(f"Shape {shape} must have rank at least 2")
    if target[0] != source[0]:
        raise ValueError(
            f"Need first dimension of target shape {target} and source shape {source} "
            "to match."
        )


def _parse_unconnected(given: UnconnectedGradients | str) -> UnconnectedGradients:
    """Return the member of the enum that an argument stands for."""
    try:
        return UnconnectedGradients(given)
    except ValueError:
        raise ValueError(
            f"Unknown value for unconnected_gradients: {given!r}. Use "
            "unisono.UnconnectedGradients.NONE or ZERO."
        ) from None


def _fill(
    found: Sequence[Any],
    wanted: Sequence[Any],
    rule: UnconnectedGradients,
    leading: tuple[int, ...] = (),
) -> list[Any]:
    """Return gradients with zeros for those that are None, if that is the rule."""
    if rule is UnconnectedGradients.NONE:
        return list(found)
    return [
        jnp.zeros((*leading, *x.shape), x.dtype) if gradient is None else gradient
        for gradient, x in zip(found, wanted, strict=True)
    ]


def _rebuild(sources: object, found: Sequence[Any]) -> Any:
    """Return gradients in the structure of the sources."""
    given = iter(found)
    return nest.map_structure(lambda _: next(given), sources)
