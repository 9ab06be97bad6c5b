"""Seeds of random orders: one per dataset, and another order for each pass."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import global_seed
from unisono._src.input.plan import nodes


@final
class Order:
    """Numbers the passes over a shuffled dataset, and holds the seed.

    It belongs to the dataset, not to an iterator: every new iterator is another pass.

    Args:
        seed: the seed; None draws one, which follows from `random.set_seed`.
        changes: whether each pass has another order.
    """

    def __init__(self, seed: int | None, changes: bool) -> None:
        self.seed = global_seed.draw() if seed is None else seed
        self.is_drawn = seed is None
        self.changes = changes
        self._passes = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[int, bool, bool, int]:
        # A lock cannot be pickled, and worker processes get a copy of the plan.
        return (self.seed, self.is_drawn, self.changes, self._passes)

    def __setstate__(self, state: tuple[int, bool, bool, int]) -> None:
        self.seed, self.is_drawn, self.changes, self._passes = state
        self._lock = threading.Lock()

    def begin(self) -> int:
        """Begins a pass and returns its number."""
        with self._lock:
            number = self._passes
            # If the order never changes, all passes have the number 0.
            self._passes += 1 if self.changes else 0
        return number

    @property
    def passes(self) -> int:
        """Returns the number that the next pass will have."""
        return self._passes

    def separate_copy(self) -> Order:
        """Returns an order with the same seed, whose passes are counted separately."""
        return Order(self.seed, self.changes)

    def resume(self, seed: int, passes: int) -> None:
        """Continues another program's run, in which `passes` passes had begun."""
        with self._lock:
            self.seed, self._passes = seed, passes


@final
class RandomPass:
    """One pass in a random order; it begins when its seed is first needed.

    Attributes:
        seed: the seed of the order when the pass began.
        number: the number of the pass; None before it begins.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.seed = 0
        self.number: int | None = None

    def begin(self) -> tuple[int, int]:
        """Returns the seed and the number of the pass; the first call takes them."""
        if self.number is None:
            self.seed, self.number = self._order.seed, self._order.begin()
        return self.seed, self.number

    def get_state(self) -> dict[str, int]:
        """Returns the seed, the number, and how many passes have begun.

        To ask for it begins the pass, since a position holds its seed and number.
        """
        seed, number = self.begin()
        return {"seed": seed, "pass": number, "passes": self._order.passes}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues the pass of another run.

        The dataset goes on counting, so that its next pass has the order that the
        program which saved the position would have given it.
        """
        self.seed, self.number = state["seed"], state["pass"]
        self._order.resume(state["seed"], state["passes"])


@final
class Orders:
    """The orders in several plans, of which only some are read at a time.

    A plan that is not being read has no cursor to save its order with.

    Args:
        plans: the plans to search.
    """

    def __init__(self, plans: Sequence[nodes.Node]) -> None:
        found = [getattr(n, "order", None) for p in plans for n in nodes.walk(p)]
        self._found = [order for order in found if isinstance(order, Order)]

    def get_state(self) -> list[Any]:
        """Returns the seed and the number of the next pass of each order."""
        return [[order.seed, order.passes] for order in self._found]

    def set_state(self, state: list[Any]) -> None:
        """Continues with the seeds and passes of another run."""
        for order, (seed, passes) in zip(self._found, state, strict=True):
            order.resume(seed, passes)


def draw_order() -> Order:
    """Returns an order with a drawn seed, for a node that makes datasets."""
    return Order(None, changes=True)


def reseed(plan: nodes.Node, seed: int, number: int, place: int) -> nodes.Node:
    """Returns a plan that a function made, with seeds that are the same in every run.

    Seeds that were drawn would differ between workers, which must read the same, and
    after a resume. An order that does not change from pass to pass gets one seed for
    all the datasets that the function makes.

    Args:
        plan: the dataset that was made.
        seed: the seed of the node that called the function.
        number: the number of the pass over that node.
        place: how many datasets the pass had made before.
    """
    found = [getattr(n, "order", None) for n in nodes.walk(plan)]
    # A dict, to have each order once and in the order of the plan.
    own = dict.fromkeys(o for o in found if isinstance(o, Order) and o.is_drawn)
    if not own:
        return plan
    made = {}
    for index, order in enumerate(own):
        key = [seed, index, number, place] if order.changes else [seed, index]
        derived = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
        # 63 bits, as a drawn seed has.
        made[order] = Order(derived >> 1, order.changes)

    def change(node: nodes.Node) -> nodes.Node | None:
        order = getattr(node, "order", None)
        if order not in made:
            return None
        # Nodes with an order share no base class that declares it.
        return dataclasses.replace(node, order=made[order])  # type: ignore[call-arg]

    return nodes.rewrite(plan, change)
