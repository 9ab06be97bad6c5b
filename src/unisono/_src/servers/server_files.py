"""Checkpoints of servers' variables: each server writes and reads its own rows."""

from __future__ import annotations

import abc
import contextlib
import itertools
import pathlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, final

from unisono._src.foundation import errors, row_files
from unisono._src.servers import random_keys
from unisono._src.state import remote_state
from unisono._src.state.remote_state import home_of
from unisono._src.state.storage import Cell


class SavingServers(remote_state.RemoteState):
    """Servers that write and read their own parts of checkpoints; abstract."""

    def __init__(self) -> None:
        # The numbers of closures mean nothing in another program.
        self.run = secrets.token_hex(8)
        self._holds = itertools.count()

    @property
    @abc.abstractmethod
    def addresses(self) -> Sequence[str]:
        """Where each server runs, for messages."""

    @abc.abstractmethod
    def impl_of(self, cell: Cell) -> str | None:
        """Returns the implementation of a cell's random keys; None for numbers."""

    @abc.abstractmethod
    def call_each(
        self, what: str, method: str, given: Mapping[int, tuple[Any, ...]]
    ) -> dict[int, Any]:
        """Calls a method of several servers at once, and returns their results.

        Args:
            what: what they are asked to do, for messages.
            method: the name of the method.
            given: the arguments for each server.

        Raises:
            UnavailableError: a server is gone; it says which, and what it held.
        """

    def hold(
        self, cells: Sequence[Cell], wanted: Collection[Cell]
    ) -> remote_state.RemoteSnapshot:
        """Keeps the values that variables have now; see `RemoteState`."""
        return ServerSnapshot(self, next(self._holds), cells, wanted)

    def check_seen(self, cells: Sequence[Cell], path: pathlib.Path, mark: str) -> None:
        """Raises unless the servers of variables see a file; see `RemoteState`."""
        asked = {index: (str(path), mark.encode()) for index in _group_by_server(cells)}
        found = self.call_each("looking for a checkpoint", "sees", asked)
        for index, is_seen in found.items():
            if not is_seen:
                raise errors.FailedPreconditionError(
                    f"The parameter server {index} ({self.addresses[index]}) does not "
                    f"see {path}. Servers write and read their own parts of a "
                    "checkpoint: keep checkpoints in a folder that the coordinator and "
                    "all servers share."
                )

    def load(self, directory: pathlib.Path, places: remote_state.Places) -> None:
        """Lets servers read values from a checkpoint; see `RemoteState`."""
        given = {
            index: (str(directory), {home_of(c).key: places[c] for c in own})
            for index, own in _group_by_server(places).items()
        }
        self.call_each("reading a checkpoint", "load", given)

    def remember(self, closures: Mapping[str, Any]) -> None:
        """Tells servers which closures the restored values have; see `RemoteState`."""
        made = closures.get(self.run, {})
        given = {i: (made.get(str(i), []),) for i in range(len(self.addresses))}
        self.call_each("restoring a checkpoint", "remember", given)


def _group_by_server(cells: Iterable[Cell]) -> dict[int, list[Cell]]:
    """Returns variables by the number of the server that has them."""
    found: dict[int, list[Cell]] = {}
    for cell in cells:
        found.setdefault(home_of(cell).servers[0], []).append(cell)
    return found


@final
class ServerSnapshot(remote_state.RemoteSnapshot):
    """The values that variables on servers had when this was made.

    Args:
        group: the servers.
        number: by which the servers name what they hold.
        cells: the variables.
        wanted: those of them whose values are needed here.
    """

    def __init__(
        self,
        group: SavingServers,
        number: int,
        cells: Sequence[Cell],
        wanted: Collection[Cell],
    ) -> None:
        self._group, self._number = group, number
        # Each variable once, though several objects of a checkpoint may have it.
        own = _group_by_server(dict.fromkeys(cells))
        asked = {i: [c for c in x if c in wanted] for i, x in own.items()}
        given = {i: (number, _keys(own[i]), _keys(asked[i])) for i in own}
        self._servers = list(own)
        try:
            found = group.call_each("holding values for a checkpoint", "hold", given)
        except BaseException:
            self.release()
            raise
        self.values = {
            cell: random_keys.from_numbers(value, group.impl_of(cell))
            for index, (_, values) in found.items()
            for cell, value in zip(asked[index], values, strict=True)
        }
        made = {str(index): numbers for index, (numbers, _) in found.items() if numbers}
        self.closures = {group.run: made} if made else {}

    def write(self, directory: pathlib.Path, places: remote_state.Places) -> None:
        """Lets servers write values to the folder of a checkpoint's arrays."""
        self._group.check_seen(list(places), directory, "")
        own = _group_by_server(places)
        # A random part in the name: a folder of a killed program may be there still.
        folders = {index: f"ps{index}-{self._group.run}" for index in own}
        given = {
            index: (
                self._number,
                str(directory / folders[index]),
                {home_of(c).key: places[c] for c in cells},
            )
            for index, cells in own.items()
        }
        found = self._group.call_each("writing a checkpoint", "write", given)
        left: dict[row_files.Place, list[row_files.Rows]] = {}
        for index, cells in own.items():
            for cell in cells:
                # Parts of one array, on several servers, differ in where they start
                # only.
                whole = places[cell]._replace(start=0)
                left.setdefault(whole, []).extend(found[index][home_of(cell).key])
        row_files.finish(directory, folders.values(), left)

    def release(self) -> None:
        """Lets servers forget the values."""
        given = {index: (self._number,) for index in self._servers}
        self._servers = []
        # A server that is gone holds nothing. The next call to it raises the error.
        with contextlib.suppress(errors.UnavailableError):
            self._group.call_each("releasing values", "release", given)


def _keys(cells: Iterable[Cell]) -> list[str]:
    return [home_of(c).key for c in cells]
