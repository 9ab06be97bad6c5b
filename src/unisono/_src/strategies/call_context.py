"""Checks how and where a strategy's methods are called, and enters its scope."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeGuard, TypeVar, final

import jax

from unisono._src.foundation import ambient, errors, library_hooks, options
from unisono._src.values import distributed

if TYPE_CHECKING:
    # Named in signatures only: they import this module.
    from unisono._src.strategies.base import Strategy
    from unisono._src.strategies.extended import StrategyExtended

_Strategy = TypeVar("_Strategy", bound="Strategy")

# A program's function, and what it is called with.
Fn: TypeAlias = Callable[..., object]
Args: TypeAlias = tuple[object, ...]
Kwargs: TypeAlias = dict[str, object]
Communication: TypeAlias = options.CommunicationOptions | None


@final
class _Default:
    """The default strategy, in whose context code is that is in no scope."""

    strategy: Strategy | None = None


def set_default(strategy: Strategy) -> None:
    """Says which strategy is the default one, of which there is one object."""
    _Default.strategy = strategy


def is_default(strategy: object) -> bool:
    """Whether a strategy is the default one."""
    return strategy is _Default.strategy


def find_placement(strategy: Strategy) -> Any:
    """Returns where variables made in a strategy's scope go; None for anywhere."""
    # Private, because programs see the class.
    return strategy.extended._placement  # noqa: SLF001


def require_cross_replica(strategy: Strategy, method: str | None = None) -> None:
    """Raises unless the code is in cross-replica context of `strategy`, or in none.

    Args:
        strategy: the strategy whose method was called.
        method: the message of the error in replica context; None for the usual one.
    """
    frame = ambient.current()
    owner = None if strategy is _Default.strategy else strategy
    if frame.strategy is None or frame.strategy is owner:
        if frame.strategy is None or frame.mode != ambient.REPLICA:
            return
        raise errors.cross_replica_required_error(method)
    raise errors.mixed_strategies_error(frame.strategy, strategy)


def check_args(args: object) -> None:
    """Raises unless positional arguments come as a list or tuple."""
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"positional args must be a list or tuple, got {type(args)}; write "
            "args=(value,) for a single argument."
        )


def check_run_options(given: options.RunOptions, arguments: object) -> None:
    """Raises if a run cannot do what its options ask for.

    Args:
        given: the options.
        arguments: the arguments of the replica function.

    Raises:
        ValueError: the options allow only static shapes, but replicas have values of
            different shapes; or they ask for buckets of inputs; or they ask for another
            way to partition a program.
        TypeError: the XLA options are of another class.
    """
    if given.experimental_bucketizing_dynamic_shape:
        raise ValueError(
            "experimental_bucketizing_dynamic_shape pads inputs to the next of a few "
            "sizes. A JAX program cannot tell padding from data, so means and batch "
            "statistics would change. Leave it False: a new shape is compiled once. "
            "Or pad the dataset yourself, with a mask."
        )
    xla = given.experimental_xla_options
    if xla is None:
        xla = options.XLAOptions()
    elif not isinstance(xla, options.XLAOptions):
        raise TypeError(
            "Expected unisono.tpu.XLAOptions as experimental_xla_options, received "
            f"{xla!r} of type {type(xla).__name__}."
        )
    if not xla.use_spmd_for_xla_partitioning:
        raise ValueError(
            "use_spmd_for_xla_partitioning=False asks for a program for each logical "
            "device; XLA has one for all of them, and splits its arrays. Leave it True."
        )
    is_dynamic = given.experimental_enable_dynamic_batch_size
    if not (is_dynamic and xla.enable_xla_dynamic_padder):
        _check_static(arguments)


def _check_static(arguments: object) -> None:
    """Raises unless all replicas have values of the same shapes."""
    found = jax.tree.leaves(arguments, is_leaf=_is_per_replica)
    for value in found:
        # A local value is one program's for all replicas: it has one shape.
        if not _is_per_replica(value) or value.local is not None:
            continue
        shapes = [
            [jax.numpy.shape(x) for x in jax.tree.leaves(v)] for v in value.values
        ]
        if any(s != shapes[0] for s in shapes):
            raise ValueError(
                "Only static shapes are allowed by these RunOptions, but the replicas' "
                f"parts of a value have the shapes {shapes}. Batch the dataset with "
                "drop_remainder=True, or leave experimental_enable_dynamic_batch_size "
                "True."
            )


def _is_per_replica(x: object) -> TypeGuard[distributed.PerReplica]:
    return isinstance(x, distributed.PerReplica)


@contextlib.contextmanager
def scope_of(strategy: Strategy) -> Iterator[None]:
    """Enters cross-replica context of `strategy` for a block, unless already in it."""
    frame = ambient.current()
    # The same frame object, so that `function` and scopes recognize it.
    if strategy is _Default.strategy or frame.strategy is strategy:
        yield
        return
    # The fields as they are: every eager call comes here, and a property costs a call.
    extended = strategy._extended  # noqa: SLF001
    with ambient.push(
        strategy=strategy,
        mode=ambient.CROSS,
        replica=None,
        port=None,
        copy=None,
        placement=extended._placement,  # noqa: SLF001
        # Tells the creators from before the scope from those inside it.
        outer_creators=len(frame.creators),
        creators=(*frame.creators, *_custom_creators(extended)),
    ):
        yield


def _custom_creators(extended: StrategyExtended) -> tuple[Callable[..., object], ...]:
    """Returns the `_create_variable` of a program's own strategy, if it has one."""
    create = getattr(extended, "_create_variable", None)
    return () if create is None else (create,)


@final
class StrategyScope(Generic[_Strategy]):
    """The context manager that `Strategy.scope` returns.

    It may be entered again inside itself or inside another scope of the strategy, but
    not after it was left for good.
    """

    def __init__(self, strategy: _Strategy) -> None:
        self._strategy = strategy
        # How to leave each block, and the frame that it runs in.
        self._open: list[tuple[contextlib.ExitStack, ambient.Frame]] = []
        self._loaded: list[library_hooks.Integration] = []
        self._left = False
        # Whether leaving it was an error, after which a program may leave it again.
        self._is_broken = False

    def __enter__(self) -> _Strategy:
        if self._left and not self._open:
            raise AttributeError(
                "This scope was left and cannot be entered again; call "
                "strategy.scope() for a new one."
            )
        check_scope(self._strategy)
        with contextlib.ExitStack() as stack:
            stack.enter_context(scope_of(self._strategy))
            self._loaded = stack.enter_context(library_hooks.enter_scopes())
            # Both were entered without an error: from now on `__exit__` leaves them.
            self._open.append((stack.pop_all(), ambient.current()))
        return self._strategy

    def __exit__(self, *exc: Any) -> None:
        if not self._open:
            self._check_broken()
            return
        # Compared with the frame that was entered: TensorFlow raises if a block inside
        # is still open.
        found = ambient.current()
        stack, frame = self._open.pop()
        stack.__exit__(*exc)
        outer = ambient.current()
        # Inside a scope of the same strategy there was nothing to enter.
        is_nested = outer is found and not is_default(self._strategy)
        self._left = self._left or not is_nested
        if found is not frame and found.strategy is not self._strategy:
            # A block around it was left first, with an error; this one ended then.
            ambient.swap(found)
        elif found is not frame and not is_nested:
            self._is_broken = True
            raise RuntimeError(
                "Variable creator scope nesting error: the strategy's scope was left "
                "inside a variable_creator_scope, or another block, that was entered "
                "in it. Leave that one first."
            )
        library_hooks.check_known(self._loaded)

    def _check_broken(self) -> None:
        """Raises `RuntimeError` unless leaving the scope was an error before.

        TensorFlow leaves a scope only when it is left without an error, so a program
        leaves it again; here it was left already.
        """
        if not self._is_broken:
            raise RuntimeError(
                "Variable scope nesting error: this strategy's scope was left already, "
                "or never entered. Leave a scope as often as you enter it, or write "
                "`with strategy.scope():`."
            )
        self._is_broken = False


def check_scope(strategy: Strategy) -> None:
    """Raises unless the scope of `strategy` may be entered here."""
    frame = ambient.current()
    if frame.strategy is not None and is_default(strategy):
        raise RuntimeError(
            "Must not nest tf.distribute.Strategy scopes: the default strategy's "
            f"scope cannot be entered inside that of {frame.strategy!r}."
        )
    require_cross_replica(strategy)
