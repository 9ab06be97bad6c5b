"""`Example`, `SequenceExample` and their parts: TensorFlow's messages of records.

They are classes of the package ``protobuf``, in a descriptor pool of their own: a
process may have TensorFlow's as well. The bytes are the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from unisono._src.foundation import messages
from unisono._src.foundation.tensorflow_names import everyday

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

CLASSES = messages.make_classes(
    "tensorflow",
    BytesList="repeated bytes value = 1",
    FloatList="repeated float value = 1",
    Int64List="repeated int64 value = 1",
    Feature="oneof kind BytesList bytes_list = 1; oneof kind FloatList float_list = 2;"
    "oneof kind Int64List int64_list = 3",
    Features="map Feature feature = 1",
    FeatureList="repeated Feature feature = 1",
    FeatureLists="map FeatureList feature_list = 1",
    Example="optional Features features = 1",
    SequenceExample="optional Features context = 1;"
    "optional FeatureLists feature_lists = 2",
)
BytesList = CLASSES["BytesList"]
_init = BytesList.__init__


def _init_with_texts(self: Any, *, value: Iterable[Any] = ()) -> None:
    """Takes also arrays of one text, such as elements of datasets."""
    texts = (x.item() if isinstance(x, np.ndarray) and not x.ndim else x for x in value)
    _init(self, value=texts)


BytesList.__init__ = _init_with_texts
Example = CLASSES["Example"]
Feature = CLASSES["Feature"]
FeatureList = CLASSES["FeatureList"]
FeatureLists = CLASSES["FeatureLists"]
Features = CLASSES["Features"]
FloatList = CLASSES["FloatList"]
Int64List = CLASSES["Int64List"]
SequenceExample = CLASSES["SequenceExample"]

_CONTENTS = {
    "BytesList": "Texts, as `bytes`: ``BytesList(value=[b'a', b'b'])``.",
    "Example": "A record of features: ``Example(features=Features(feature={...}))``.",
    "Feature": "One list: ``Feature(int64_list=Int64List(value=[3]))``, or "
    "`float_list`, or `bytes_list`.",
    "FeatureList": "The steps of a sequence: ``FeatureList(feature=[...])``.",
    "FeatureLists": "Sequences by name: ``FeatureLists(feature_list={...})``.",
    "Features": "Features by name: ``Features(feature={'label': Feature(...)})``.",
    "FloatList": "Numbers of type float32: ``FloatList(value=[0.5])``.",
    "Int64List": "Whole numbers of 64 bits: ``Int64List(value=[3])``.",
    "SequenceExample": "A record of a `context` of features, and of `feature_lists`.",
}
for _name, _class in CLASSES.items():
    _class.__doc__ = (
        f"{_CONTENTS[_name]}\n\n"
        "A message of Protocol Buffers with TensorFlow's fields, and its bytes: see\n"
        "`SerializeToString` and `FromString`.\n"
    )
    everyday.everyday_name(f"train.{_name}")(_class)
