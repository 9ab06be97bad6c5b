"""Decides which variables of a strategy are cut over its devices, and along which axis.

See docs/decisions/0017 and 0036.
"""

from __future__ import annotations

import collections
import logging
import math
import operator
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, final

from unisono._src.machines.partition import Split
from unisono._src.machines.topology import AXIS, Topology

_log = logging.getLogger("unisono")

# In elements. A smaller variable is not worth a collective of its own.
_DEFAULT_THRESHOLD = 1 << 16

Gather = Literal["use", "step"]
Over = Literal["all", "worker"]
Rules = Mapping[str, int | None]


@final
class Choice(NamedTuple):
    """How an array is kept, and why.

    Attributes:
        split: how it is cut; None if it stays whole.
        reason: the reason, for people.
    """

    split: Split | None
    reason: str

    def __str__(self) -> str:
        if self.split is None:
            return f"whole ({self.reason})"
        copies = f" in {self.split.copies} copies" if self.split.copies > 1 else ""
        return (
            f"axis {self.split.axis}, {self.split.parts} parts{copies} ({self.reason})"
        )


@final
class ShardPlan:
    """What a strategy with ``state="sharded"`` says about its variables.

    Args:
        above: the number of elements from which on a variable is cut.
        rules: the axis to cut, or None for none, by a regular expression that is
            searched in the names of variables; the first that is found holds.
        gather: when a compiled step gathers weights: where it uses them, or before the
            step.
        over: over which devices a variable is cut: those of all workers, or those of
            each worker.
    """

    def __init__(
        self,
        above: int = _DEFAULT_THRESHOLD,
        rules: Rules = MappingProxyType({}),
        gather: Gather = "use",
        over: Over = "all",
    ) -> None:
        self.above = above
        self._over = over
        self.gather = gather
        self._rules = {re.compile(p): axis for p, axis in rules.items()}
        self._unused = set(rules)
        self._names: list[str] = []
        self._whole: set[tuple[int, ...]] = set()
        # Variables that have a rule: shape and axis, by name. Slots of optimizers go
        # with their variables.
        self._ruled: dict[str, tuple[tuple[int, ...], int | None]] = {}
        self._owners: dict[str, str] = {}

    @property
    def has_rules(self) -> bool:
        """Whether there are rules for some names."""
        return bool(self._rules)

    def choose(
        self, topology: Topology, shape: Sequence[int], name: str | None = None
    ) -> Choice:
        """Returns how to keep an array.

        Without a rule the largest axis is cut that the number of devices divides. Of
        three axes or more the first one is cut only if no other can be: it may be that
        of layers in a loop, which gathers them one by one. If the number divides none,
        its largest divisor that does is taken: groups of so many devices have all
        parts, and each group has a copy.

        Args:
            topology: the devices. The logical devices of a replica share its array;
                where a replica has one device, the replicas share it.
            shape: the shape of the array.
            name: the name of its variable, for rules.

        Raises:
            ValueError: a rule names an axis that is not there or cannot be cut.

        >>> pair = Topology.of(["CPU:0", "CPU:1"])
        >>> ShardPlan(6).choose(pair, (3, 4)).split
        Split(axis=1, parts=2, over=('replica',), copies=1)
        >>> str(ShardPlan(6).choose(pair, (3, 3)))
        'whole (no axis fits 2 devices)'
        """
        if math.prod(shape) < max(self.above, 1):
            return Choice(None, f"below {self.above:,} elements")
        parts = topology.num_logical_devices
        if parts == 1:
            parts = _count_devices(topology, self._over)
        if parts == 1:
            return Choice(None, "one device")
        rule = self._find_rule(name, tuple(shape))
        if rule is not None:
            axis = rule[0]
            if axis is None:
                return Choice(None, "shard_rules")
            axis = _check_axis(name, shape, axis, parts)
            count = _divisors(math.gcd(shape[axis], parts))[0]
            return Choice(_make_split(topology, axis, count), "shard_rules")
        for count in _divisors(parts):
            fitting = [i for i, size in enumerate(shape) if size % count == 0]
            others = [i for i in fitting if i or len(shape) < 3]
            if fitting and count > 1:
                best = max(others or fitting, key=lambda i: shape[i])
                reason = "largest axis" if others else "no other axis"
                return Choice(_make_split(topology, best, count), reason)
        return Choice(None, f"no axis fits {parts} devices")

    def note(self, name: str, shape: tuple[int, ...], choice: Choice) -> None:
        """Notes a variable that is made, and logs if it stays whole though large."""
        rule = self._find_rule(name, shape)
        self._names.append(name)
        for pattern in self._rules:
            if pattern.search(name):
                self._unused.discard(pattern.pattern)
        if rule is not None:
            self._ruled[name] = (shape, rule[0])
        is_large = math.prod(shape) >= self.above
        is_meant = rule is not None or choice.reason == "one device"
        if choice.split is None and is_large and not is_meant:
            # Once for all of this shape, such as the slots of its optimizer.
            if shape in self._whole:
                return
            self._whole.add(shape)
            _log.warning(
                "The variable %r of shape %s, and others of this shape, are whole on "
                "every device: %s.",
                name,
                shape,
                choice.reason,
            )

    def follow(self, slot: str, owner: str) -> None:
        """Notes that a variable is cut as another one, if both have one shape."""
        self._owners[slot] = owner

    def check_rules(self) -> None:
        """Raises if a rule fits no variable that was made.

        Raises:
            ValueError: there are variables, and a pattern is found in no name.
        """
        if self._unused and self._names:
            pattern = min(self._unused)
            raise ValueError(
                f"No variable has a name in which the pattern {pattern!r} of "
                "shard_rules is found. There are: "
                f"{', '.join(map(repr, dict.fromkeys(self._names)))}. Correct the "
                "pattern, or make the variables before the first step."
            )

    def _find_rule(
        self, name: str | None, shape: tuple[int, ...]
    ) -> tuple[int | None] | None:
        """Returns the axis that a rule gives to a variable, in a tuple; None if none.

        A slot of an optimizer goes with its variable: one that was told of it, or whose
        name is in its own, as in Keras.
        """
        if name is None or not self._rules:
            return None
        owner = self._owners.get(name)
        flat = _flat_name(name)
        for known, (own_shape, axis) in self._ruled.items():
            # Keras names a slot after its optimizer and its variable: adam/dense_w_m.
            is_owner = known == owner if owner else f"_{_flat_name(known)}_" in flat
            if is_owner and own_shape == shape:
                return (axis,)
        for pattern, axis in self._rules.items():
            if pattern.search(name):
                return (axis,)
        return None


def make_plan(
    state: str,
    above: int | None,
    rules: Rules | None,
    gather: str | None,
    over: str | None = None,
) -> ShardPlan | None:
    """Returns what a strategy says about cutting variables; None if none are cut.

    Args:
        state: ``"mirrored"`` or ``"sharded"``.
        above: the strategy's `shard_above`, if it was given.
        rules: its `shard_rules`, likewise.
        gather: its `gather`, likewise.
        over: its `shard_over`, likewise.

    Raises:
        TypeError: a rule is of another type.
        ValueError: `state` is unknown, or another argument does not go with it.

    >>> make_plan("sharded", None, None, None).above
    65536
    >>> make_plan("mirrored", None, None, None)
    """
    if state not in ("mirrored", "sharded"):
        raise ValueError(f'Expected state "mirrored" or "sharded", received {state!r}.')
    given = {"shard_above": above, "shard_rules": rules, "gather": gather}
    given["shard_over"] = over
    if state == "mirrored":
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name}={value!r} is about variables that are split, but with "
                    'state="mirrored" none is. Pass state="sharded" too, or neither.'
                )
        return None
    if above is not None and above < 1:
        raise ValueError(f"Expected shard_above >= 1, received {above}.")
    if gather not in (None, "use", "step"):
        raise ValueError(f'Expected gather "use" or "step", received {gather!r}.')
    if over not in (None, "all", "worker"):
        raise ValueError(f'Expected shard_over "all" or "worker", received {over!r}.')
    return ShardPlan(
        _DEFAULT_THRESHOLD if above is None else above,
        _check_rules(rules or {}),
        "step" if gather == "step" else "use",
        "worker" if over == "worker" else "all",
    )


def _check_rules(rules: Rules) -> dict[str, int | None]:
    """Returns rules whose patterns and axes have the right types."""
    found: dict[str, int | None] = {}
    for pattern, axis in rules.items():
        try:
            re.compile(pattern)
            if isinstance(axis, bool):
                raise TypeError("an axis is a whole number")
            found[pattern] = None if axis is None else operator.index(axis)
        except (TypeError, re.error) as error:
            raise TypeError(
                "Expected shard_rules of regular expressions for names, each with the "
                f"number of an axis or None; received {pattern!r}: {axis!r} ({error})."
            ) from error
    return found


def _check_axis(name: str | None, shape: Sequence[int], axis: int, parts: int) -> int:
    """Returns the axis of a rule, counted from the first, if it can be cut."""
    place = axis + len(shape) if axis < 0 else axis
    if not 0 <= place < len(shape):
        raise ValueError(
            f"shard_rules cuts axis {axis} of the variable {name!r}, whose shape is "
            f"{tuple(shape)}. Name an axis of it, or None to keep it whole."
        )
    if math.gcd(shape[place], parts) == 1:
        raise ValueError(
            f"shard_rules cuts axis {axis} of the variable {name!r}, whose shape is "
            f"{tuple(shape)}. Its size does not fit {parts} devices, nor a part of "
            "them. Name another axis, or None to keep it whole."
        )
    return place


def _count_devices(topology: Topology, over: Over) -> int:
    """Returns how many replicas share an array, if each has one device.

    Within workers it is a number that divides those of all of them. Then the replicas
    of one part follow each other on one worker.
    """
    if over == "all" or not topology.is_spread:
        return topology.replicas
    owners = collections.Counter(d.process_index for d in topology.devices)
    return math.gcd(*owners.values())


def _divisors(number: int) -> list[int]:
    """Returns the divisors of a number, largest first.

    >>> _divisors(6)
    [6, 3, 2, 1]
    """
    return [i for i in range(number, 0, -1) if number % i == 0]


def _make_split(topology: Topology, axis: int, parts: int) -> Split:
    """Returns a split into so many parts over the devices that share an array."""
    if topology.num_logical_devices == 1:
        return Split(axis, parts, (AXIS,), topology.replicas // parts)
    # Logical devices that are left over have copies: their axes are not named.
    over = topology.partition([parts])[0]
    return Split(axis, parts, (over,) if isinstance(over, str) else tuple(over))


def _flat_name(name: str) -> str:
    """Returns a name as Keras writes it within the names of slots."""
    return name.replace("/", "_")
