"""Objects that belong to the process that made them."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, SupportsIndex


class ProcessBound:
    """An object with devices or threads, which no other process has; abstract.

    It can be copied by `copy.copy`, but neither by `copy.deepcopy` nor by `pickle`.

    Attributes:
        _bound_title: what it is, for messages; its class by default.
        _instead: what to copy or pickle instead, as a sentence.
    """

    _bound_title: ClassVar[str] = ""
    _instead: ClassVar[str] = ""

    def __copy__(self) -> Self:
        # `copy` would use `__reduce_ex__`, which refuses.
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise refusal(self._title_of(), "copied deeply", self._instead)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise refusal(self._title_of(), "pickled", self._instead)

    def _title_of(self) -> str:
        return self._bound_title or f"A {type(self).__name__}"


def refusal(title: str, what: str, instead: str) -> TypeError:
    """Returns the error to raise when something cannot be copied or pickled."""
    return TypeError(
        f"{title} cannot be {what}: it belongs to the devices or threads of this "
        f"process. {instead}"
    )
