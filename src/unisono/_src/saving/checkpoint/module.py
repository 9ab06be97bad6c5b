"""`Module`: an object that finds its own variables, as TensorFlow's ``tf.Module``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from unisono._src.foundation import ambient
from unisono._src.ops.scopes import name_scope
from unisono._src.saving.checkpoint import deferred_restore, object_graph
from unisono._src.saving.checkpoint.variable_parts import VariableInParts
from unisono._src.saving.format import manifest
from unisono._src.state.variables import Variable

_R = TypeVar("_R")
# As names of Python, so that they are the beginning of variables' names.
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _to_snake_case(name: str) -> str:
    """Returns the name of a class as TensorFlow writes it in names of modules.

    >>> _to_snake_case("LSTMCell"), _to_snake_case("Dense2D"), _to_snake_case("_Own")
    ('lstm_cell', 'dense2_d', '__own')
    """
    words = re.sub(r"((?<=[a-z0-9])[A-Z]|(?!^)[A-Z](?=[a-z]))", r"_\1", name)
    return words.lower()


class Module(deferred_restore.DeferredRestoreMixin):
    """A named object that finds the variables and modules in its attributes.

    A checkpoint saves its variables, random state and other values that can change.
    Numbers and strings in its attributes count as configuration and are not saved.

    Args:
        name: the name; by default the name of the class in snake case.

    >>> import unisono
    >>> class LinearLayer(unisono.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.w = unisono.Variable([1.0, 2.0], name="w")
    >>> layer = LinearLayer()
    >>> (layer.name, [v.name for v in layer.variables])
    ('linear_layer', ['w:0'])
    """

    def __init__(self, name: str | None = None) -> None:
        kind = type(self).__name__
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid module name. Use letters, digits and "
                "underscores, such as 'encoder_1'."
            )
        self._name = _to_snake_case(kind) if name is None else name
        # With the names of the blocks in which the module is made.
        self._names = f"{ambient.current().names}{self._name}/"

    def __repr__(self) -> str:
        # A subclass may be shown before it has called `super().__init__()`.
        return f"<{type(self).__name__} name={getattr(self, '_name', None)}>"

    @property
    def name(self) -> str:
        """The name of the module."""
        return self._name

    @property
    def name_scope(self) -> name_scope:
        """A context manager that prefixes variable names with the module's name.

        >>> import unisono
        >>> model = unisono.Module("model")
        >>> with model.name_scope:
        ...     model.w = unisono.Variable(1.0, name="w")
        >>> model.w.name
        'model/w:0'
        """
        return name_scope(self._names)

    @classmethod
    def with_name_scope(cls, method: Callable[..., _R]) -> Callable[..., _R]:
        """Decorates a method so that it runs in the module's `name_scope`.

        Args:
            method: a method of a module.

        >>> import unisono
        >>> class Layer(unisono.Module):
        ...     @unisono.Module.with_name_scope
        ...     def __call__(self):
        ...         self.w = unisono.Variable(1.0, name="w")
        >>> layer = Layer()
        >>> layer()
        >>> layer.w.name
        'layer/w:0'
        """

        @functools.wraps(method)
        def named(self: Any, *args: Any, **kwargs: Any) -> _R:
            with self.name_scope:
                return method(self, *args, **kwargs)

        return named

    def _checkpoint_children(self) -> dict[str, object_graph.StateSlot]:
        return {
            name: object_graph.attribute_slot(self, name)
            for name, value in sorted(vars(self).items())
            if name != object_graph.PENDING_ATTRIBUTE
            and object_graph.is_state(value)
            and object_graph.leaf_kind(value) != manifest.PLAIN
        }

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables of the module and of everything in its attributes, each once.

        For a `ShardedVariable`, the list contains its parts.

        >>> import unisono
        >>> model = unisono.Module()
        >>> model.layers = [unisono.Module(), unisono.Module()]
        >>> model.layers[0].w = model.layers[1].w = unisono.Variable(3.0)
        >>> [float(v.numpy()) for v in model.variables]
        [3.0]
        """
        found: dict[int, Variable] = {}
        for x in self._objects_below():
            # Of a variable in parts the parts count, as in TensorFlow; one of them may
            # be an attribute of its own, too.
            parts = x.owner.variables if isinstance(x, VariableInParts) else [x]
            found.update((id(v), v) for v in parts if isinstance(v, Variable))
        return tuple(found.values())

    @property
    def trainable_variables(self) -> tuple[Variable, ...]:
        """The variables that optimizers update.

        >>> import unisono
        >>> model = unisono.Module()
        >>> model.w = unisono.Variable(1.0, name="w")
        >>> model.mean = unisono.Variable(0.0, trainable=False, name="mean")
        >>> [v.name for v in model.trainable_variables]
        ['w:0']
        """
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Variable, ...]:
        """The variables that optimizers do not update.

        >>> import unisono
        >>> model = unisono.Module()
        >>> model.w = unisono.Variable(1.0, name="w")
        >>> model.mean = unisono.Variable(0.0, trainable=False, name="mean")
        >>> [v.name for v in model.non_trainable_variables]
        ['mean:0']
        """
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple[Module, ...]:
        """All modules below this one, each once.

        >>> import unisono
        >>> model = unisono.Module("model")
        >>> model.layers = {"a": unisono.Module("a"), "b": unisono.Module("b")}
        >>> [module.name for module in model.submodules]
        ['a', 'b']
        """
        return tuple(x for x in self._objects_below() if isinstance(x, Module))

    def _objects_below(self) -> list[Any]:
        """Returns the objects in the attributes, in TensorFlow's order.

        First those of a module's own attributes, sorted by name, also in lists and
        dicts; then those of each module that is among them.
        """
        nodes = object_graph.walk(self)
        found = {0: nodes[0].obj}
        listed: set[int] = set()

        def list_below(parent: object_graph.FoundObject) -> Iterator[int]:
            names: Iterable[str] = parent.children
            if isinstance(parent.obj, dict) and len({*map(type, parent.obj)}) == 1:
                names = map(str, sorted(parent.obj))
            for number in (parent.children[name] for name in names):
                if not isinstance(nodes[number].obj, (list, tuple, dict)):
                    yield number
                elif number not in listed:
                    listed.add(number)  # A list may hold itself.
                    yield from list_below(nodes[number])

        def add(number: int) -> None:
            own = [
                n for n in dict.fromkeys(list_below(nodes[number])) if n not in found
            ]
            found.update((n, nodes[n].obj) for n in own)
            for below in own:
                add(below)

        add(0)
        return [*found.values()][1:]
