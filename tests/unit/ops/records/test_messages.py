"""The messages of records are Protocol Buffers messages with TensorFlow's bytes."""

import pickle

import pytest

import unisono as uni

train = uni.train


def example():
    return train.Example(
        features=train.Features(
            feature={
                "x": train.Feature(int64_list=train.Int64List(value=[1, -2])),
                "y": train.Feature(bytes_list=train.BytesList(value=[b"\xff\0"])),
                "z": train.Feature(float_list=train.FloatList(value=[0.5])),
            }
        )
    )


def test_an_example_has_the_bytes_that_tensorflow_writes():
    # What `SerializeToString(deterministic=True)` gives in TensorFlow.
    assert example().SerializeToString(deterministic=True) == (
        b"\n2\n\x14\n\x01x\x12\x0f\x1a\r\n\x0b\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff"
        b"\x01\n\x0b\n\x01y\x12\x06\n\x04\n\x02\xff\x00\n\r\n\x01z\x12\x08\x12\x06\n\x04"
        b"\x00\x00\x00?"
    )
    assert example().ByteSize() == 52


def test_an_example_is_read_back_and_changed():
    found = train.Example.FromString(example().SerializeToString())
    assert found == example()
    other = train.Example()
    assert other.ParseFromString(example().SerializeToString()) == 52
    other.features.feature["x"].int64_list.value.append(3)
    other.features.feature["new"].float_list.value[:] = [1.5]
    assert other.features.feature["x"].int64_list.value == [1, -2, 3]
    assert other.features.feature["new"].WhichOneof("kind") == "float_list"
    assert sorted(other.features.feature) == ["new", "x", "y", "z"]


def test_a_feature_keeps_the_last_of_its_lists():
    feature = train.Feature(int64_list=train.Int64List(value=[1]))
    feature.bytes_list.value.append(b"a")
    assert not feature.HasField("int64_list")


def test_an_example_is_shown_as_text():
    shown = str(train.Feature(int64_list=train.Int64List(value=[1])))
    assert shown == "int64_list {\n  value: 1\n}\n"


def test_a_message_can_be_pickled_and_names_its_public_module():
    assert pickle.loads(pickle.dumps(example())) == example()
    assert train.Example.__module__ == "unisono.train"
    assert train.Example.DESCRIPTOR.full_name == "tensorflow.Example"


def test_old_versions_names_are_the_same_messages():
    assert uni.compat.v1.train.Example is train.Example
    assert uni.compat.v1.parse_single_example is uni.io.parse_single_example
    assert uni.compat.v1.io.FixedLenFeature is uni.compat.v1.FixedLenFeature


@pytest.mark.parametrize("name", ["RaggedFeature", "SparseFeature"])
def test_features_that_are_not_here_name_the_one_to_use(name):
    with pytest.raises(AttributeError, match="VarLenFeature"):
        getattr(uni.io, name)
