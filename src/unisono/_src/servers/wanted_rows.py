"""Packs rows of variables for travel: each row once, and only wanted rows."""

from __future__ import annotations

from typing import final

import numpy as np

from unisono._src.servers.messages import Operation
from unisono._src.state import rows


@final
class UniqueRows:
    """Positions of rows, without those that are absent or asked for twice.

    Args:
        places: the positions, of any shape; `rows.ABSENT` for none.

    Attributes:
        rows: the positions to ask a server for.
    """

    def __init__(self, places: np.ndarray) -> None:
        self._shape = places.shape
        flat = places.reshape(-1)
        self._present = flat != rows.ABSENT
        self.rows, self._number = np.unique(flat[self._present], return_inverse=True)

    def expand(self, found: np.ndarray) -> np.ndarray:
        """Returns a row for each position, zeros for those that are absent.

        Args:
            found: the rows that the server has sent.
        """
        made = np.zeros((self._present.size, *found.shape[1:]), found.dtype)
        made[self._present] = found[self._number]
        return made.reshape(*self._shape, *found.shape[1:])


def pack(operation: Operation) -> Operation:
    """Returns an operation without the rows that change nothing, as it travels.

    Rows with the same position are added up.
    """
    if operation.kind in ("scatter_add", "scatter_sub"):
        return operation._replace(operands=_join(*operation.operands))
    if not operation.sparse:
        return operation
    operands = list(operation.operands)
    for i, j, _ in operation.sparse:
        operands[i], operands[j] = _join(operands[i], operands[j])
    return operation._replace(operands=tuple(operands))


def unpack(operation: Operation) -> list[np.ndarray]:
    """Returns the operands of an operation that has travelled, as its program needs."""
    operands = list(operation.operands)
    for i, j, count in operation.sparse:
        # The program was compiled for `count` rows; absent ones change nothing.
        missing = count - len(operands[i])
        absent = np.full(missing, rows.ABSENT, operands[i].dtype)
        zeros = np.zeros((missing, *operands[j].shape[1:]), operands[j].dtype)
        operands[i] = np.concatenate([operands[i], absent])
        operands[j] = np.concatenate([operands[j], zeros])
    return operands


def _join(places: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns positions, each once and none that is absent, and the sums of rows."""
    if places.ndim != 1 or values.shape[:1] != places.shape:
        return places, values
    present = places != rows.ABSENT
    kept, own = places[present], values[present]
    found, number = np.unique(kept, return_inverse=True)
    if len(found) == len(kept):
        # No position occurs twice: the order stays, and nothing is copied again.
        return kept, own
    total = np.zeros((len(found), *values.shape[1:]), values.dtype)
    np.add.at(total, number, own)
    return found, total
