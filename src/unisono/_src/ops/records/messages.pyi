from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence
from typing import Any, Generic, Self, TypeVar

__all__ = [
    "BytesList",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
]

_T = TypeVar("_T")

class _Message:
    DESCRIPTOR: Any
    @classmethod
    def FromString(cls, data: bytes, /) -> Self: ...
    def ParseFromString(self, data: bytes, /) -> int: ...
    def MergeFromString(self, data: bytes, /) -> int: ...
    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...
    def ByteSize(self) -> int: ...
    def Clear(self) -> None: ...
    def ClearField(self, field_name: str, /) -> None: ...
    def CopyFrom(self, other: Self, /) -> None: ...
    def HasField(self, field_name: str, /) -> bool: ...
    def MergeFrom(self, other: Self, /) -> None: ...

class _Values(_Message, Generic[_T]):
    value: MutableSequence[_T]
    def __init__(self, *, value: Iterable[_T] = ...) -> None: ...

class BytesList(_Values[bytes]): ...
class FloatList(_Values[float]): ...
class Int64List(_Values[int]): ...

class Feature(_Message):
    bytes_list: BytesList
    float_list: FloatList
    int64_list: Int64List
    def __init__(
        self,
        *,
        bytes_list: BytesList | None = ...,
        float_list: FloatList | None = ...,
        int64_list: Int64List | None = ...,
    ) -> None: ...
    def WhichOneof(self, oneof_group: str, /) -> str | None: ...

class Features(_Message):
    feature: MutableMapping[str, Feature]
    def __init__(self, *, feature: Mapping[str, Feature] = ...) -> None: ...

class FeatureList(_Message):
    feature: MutableSequence[Feature]
    def __init__(self, *, feature: Iterable[Feature] = ...) -> None: ...

class FeatureLists(_Message):
    feature_list: MutableMapping[str, FeatureList]
    def __init__(self, *, feature_list: Mapping[str, FeatureList] = ...) -> None: ...

class Example(_Message):
    features: Features
    def __init__(self, *, features: Features | None = ...) -> None: ...

class SequenceExample(_Message):
    context: Features
    feature_lists: FeatureLists
    def __init__(
        self,
        *,
        context: Features | None = ...,
        feature_lists: FeatureLists | None = ...,
    ) -> None: ...
