import pytest

from unisono._src.servers import partitioners as lib


@pytest.mark.feature("T06")
@pytest.mark.parametrize(
    ("partitioner", "shape", "parts"),
    [
        (lib.FixedShardsPartitioner(2), (6, 1), [2, 1]),
        (lib.FixedShardsPartitioner(9), (6, 1), [6, 1]),
        (lib.MinSizePartitioner(4, 2), (6, 1), [2, 1]),
        (lib.MinSizePartitioner(4, 10), (6, 1), [6, 1]),
        (lib.MinSizePartitioner(1024, 10), (6, 1), [1, 1]),
        (lib.MinSizePartitioner(max_shards=4), (1 << 18, 1), [4, 1]),
        (lib.MaxSizePartitioner(4), (6, 1), [6, 1]),
        (lib.MaxSizePartitioner(4, max_shards=2), (6, 1), [2, 1]),
        (lib.MaxSizePartitioner(1024), (6, 1), [1, 1]),
        (lib.MaxSizePartitioner(8), (6,), [3]),
    ],
)
def test_partitioners_cut_as_documented(partitioner, shape, parts):
    assert partitioner(shape, "float32") == parts


@pytest.mark.parametrize(
    "make",
    [
        lambda: lib.FixedShardsPartitioner(0),
        lambda: lib.MinSizePartitioner(0),
        lambda: lib.MinSizePartitioner(max_shards=0),
        lambda: lib.MinSizePartitioner(bytes_per_string=0),
        lambda: lib.MaxSizePartitioner(0),
        lambda: lib.MaxSizePartitioner(1, max_shards=0),
        lambda: lib.MaxSizePartitioner(1, bytes_per_string=0),
    ],
)
def test_arguments_must_be_positive(make):
    with pytest.raises(ValueError, match="positive"):
        make()


def test_the_first_parts_have_one_row_more():
    assert lib.lengths(13, 5) == [3, 3, 3, 2, 2]
    assert lib.lengths(10, 4) == [3, 3, 2, 2]
    assert lib.count_parts(lib.FixedShardsPartitioner(5), (3, 2), "float32", "v") == 3
    assert lib.count_parts(lib.FixedShardsPartitioner(5), (), "float32", "v") == 1


@pytest.mark.parametrize("found", [[], [0, 1], [1, 2], [2], [2, 1, 1]])
def test_a_partitioner_must_cut_along_the_first_axis(found):
    with pytest.raises(ValueError, match="'v'"):
        lib.count_parts(lambda shape, dtype: found, (6, 1), "float32", "v")
