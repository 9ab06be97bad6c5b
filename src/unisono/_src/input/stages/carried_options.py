"""The options that are set in a plan."""

from __future__ import annotations

import dataclasses
from typing import final

from unisono._src.input.plan import cursors, nodes
from unisono._src.input.stages import dataset_options
from unisono._src.input.stages.selecting import Make


@final
@dataclasses.dataclass(frozen=True, eq=False)
class WithOptions(nodes.Keeping):
    """The same elements, with options for the whole plan."""

    options: dataset_options.Options

    def select_cursor(self, make: Make) -> cursors.Cursor:
        """Returns the elements as they are."""
        return make()

    def __str__(self) -> str:
        return "Options"


def options_of(node: nodes.Node) -> dataset_options.Options:
    """Returns the options that were set anywhere in a plan, merged; later ones win.

    Of several inputs the last one counts as the latest, as in TensorFlow.
    """
    known: dict[int, dataset_options.Options] = {}

    def merge_from(n: nodes.Node) -> dataset_options.Options:
        # Each node once: a dataset may be the input of several others, and without
        # this the work would double at each such place.
        if id(n) not in known:
            merged = dataset_options.Options()
            for parent in n.parents:
                merged = merged.merge(merge_from(parent))
            if isinstance(n, WithOptions):
                merged = merged.merge(n.options)
            known[id(n)] = merged
        return known[id(n)]

    return merge_from(node)
