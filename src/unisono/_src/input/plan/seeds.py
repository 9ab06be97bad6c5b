"""Seeds of random orders: one per dataset, another order for each pass."""

from __future__ import annotations

import dataclasses
import secrets
import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.input.plan import nodes


@final
class Order:
    """Numbers the passes over a shuffled dataset and seeds each of them.

    It belongs to the dataset, not to an iterator: every new iterator is another pass.

    Args:
        seed: None draws one.
        changes: whether each pass has another order.
    """

    def __init__(self, seed: int | None, changes: bool) -> None:
        self.seed = secrets.randbits(63) if seed is None else seed
        self.is_drawn = seed is None
        self.changes = changes
        self._passes = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[int, bool, bool, int]:
        # For worker processes.
        return (self.seed, self.is_drawn, self.changes, self._passes)

    def __setstate__(self, state: tuple[int, bool, bool, int]) -> None:
        self.seed, self.is_drawn, self.changes, self._passes = state
        self._lock = threading.Lock()

    def begin(self) -> int:
        """The number of the pass that begins now."""
        with self._lock:
            number = self._passes
            self._passes += 1 if self.changes else 0
        return number

    @property
    def passes(self) -> int:
        """The number of the pass that begins next."""
        return self._passes

    def apart(self) -> Order:
        """The same order for someone whose passes are not counted."""
        return Order(self.seed, self.changes)

    def resume(self, seed: int, passes: int) -> None:
        """Continue another program's run, in which `passes` had begun."""
        with self._lock:
            self.seed, self._passes = seed, passes


@final
class Orders:
    """The orders of plans of which not all are being read, and so tell no position.

    Args:
        plans: where to look for them.
    """

    def __init__(self, plans: Sequence[nodes.Node]) -> None:
        found = [getattr(n, "order", None) for p in plans for n in nodes.walk(p)]
        self._found = [order for order in found if isinstance(order, Order)]

    def get_state(self) -> list[Any]:
        """The seed and the next pass of each."""
        return [[order.seed, order.passes] for order in self._found]

    def set_state(self, state: list[Any]) -> None:
        """Continue with the seeds and passes of another run."""
        for order, (seed, passes) in zip(self._found, state, strict=True):
            order.resume(seed, passes)


def drawn() -> Order:
    """An order for a node that makes datasets while it is read."""
    return Order(None, changes=True)


def reseeded(plan: nodes.Node, seed: int, number: int, place: int) -> nodes.Node:
    """A plan that a function made, with seeds that are the same in every run.

    Seeds that were drawn by themselves would differ between workers, who must read the
    same, and after a resume. What keeps its order from pass to pass has one for all
    places.

    Args:
        plan: the dataset that was made.
        seed: that of the node which called the function.
        number: which pass over it this is.
        place: how many datasets it had made before.
    """
    found = [getattr(n, "order", None) for n in nodes.walk(plan)]
    own = dict.fromkeys(o for o in found if isinstance(o, Order) and o.is_drawn)
    if not own:
        return plan
    made = {}
    for index, order in enumerate(own):
        key = [seed, index, number, place] if order.changes else [seed, index]
        derived = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
        made[order] = Order(derived >> 1, order.changes)

    def change(node: nodes.Node) -> nodes.Node | None:
        order = getattr(node, "order", None)
        if order not in made:
            return None
        return dataclasses.replace(node, order=made[order])  # type: ignore[call-arg]

    return nodes.rewrite(plan, change)
