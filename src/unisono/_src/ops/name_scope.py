"""`name_scope`: a prefix of the names of variables and of operations in a profile."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import final

import jax

from unisono._src.foundation import ambient
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.values import jax_traces

__all__ = ["get_current_name_scope", "name_scope"]


@everyday_name("name_scope")
@final
class name_scope:
    """Prefixes the names of variables and operations that are made in a block.

    Args:
        name: the prefix, which follows those of the blocks around it. With a ``/`` at
            its end it replaces them, and the empty text leaves them.

    Raises:
        ValueError: `name` is no text.

    >>> import unisono
    >>> with name_scope("outer"), name_scope("inner") as full:
    ...     print(full, unisono.Variable(1.0, name="v").name)
    outer/inner/ outer/inner/v:0
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ValueError("name for name_scope must be a string.")
        self._name = name
        self._open: list[contextlib.ExitStack] = []

    @property
    def name(self) -> str:
        """The name that was given."""
        return self._name

    def __enter__(self) -> str:
        frame = ambient.current()
        whole = self._name
        if whole and not whole.endswith("/"):
            whole = f"{frame.names}{whole}/"
        stack = contextlib.ExitStack()
        stack.enter_context(ambient.push(names=whole))
        # Only names of a program being traced are ever shown. Replicas that take turns
        # would leave JAX's stack of names in another order than they entered it.
        is_alone = getattr(frame.port, "made", None) is None
        if is_alone and self._name and not jax_traces.is_clean():
            stack.enter_context(jax.named_scope(self._name.rstrip("/")))
        self._open.append(stack)
        return whole

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.pop().close()


@everyday_name("get_current_name_scope")
def get_current_name_scope() -> str:
    """Returns the names of the open `name_scope` blocks, without the last ``/``.

    >>> with name_scope("outer"), name_scope("inner"):
    ...     get_current_name_scope()
    'outer/inner'
    """
    return ambient.current().names.removesuffix("/")
