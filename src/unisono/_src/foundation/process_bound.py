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
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise self._refusal("copied deeply")

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise self._refusal("pickled")

    def _refusal(self, what: str) -> TypeError:
        return TypeError(
            f"{self._bound_title or f'A {type(self).__name__}'} cannot be {what}: it "
            "belongs to the devices or threads of this process. "
            f"{self._instead}".rstrip()
        )
