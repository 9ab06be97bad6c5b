"""Datasets of CSV files give TensorFlow's rows, and go on where they stopped."""

import gzip

import numpy as np
import pytest

import unisono as tf

TABLE = (
    b"id,price,name,big,dbl,label\n"
    b"1,1.5,a,1,0.5,0\n2,,b,5000000000,1e300,1\n3,2.5,,3,1,0\n"
)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "table.csv"
    made.write_bytes(TABLE)
    return made


def rows(*args, **kwargs):
    dataset = tf.data.experimental.CsvDataset(*args, **kwargs)
    return [
        tuple(x.tolist() if hasattr(x, "tolist") else x for x in row)
        for row in dataset.as_numpy_iterator()
    ]


def batches(*args, **kwargs):
    kwargs["num_epochs"] = 1
    dataset = tf.data.experimental.make_csv_dataset(*args, **kwargs)
    return list(dataset.as_numpy_iterator())


def test_rows_may_have_quoted_line_ends(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,x\r\n1,"a\nb"\r\n2,"c""d"\n3,\n4,"e\nf"')
    wanted = [(1, b"a\nb"), (2, b'c"d'), (3, b"?"), (4, b"e\nf")]
    assert rows(path, [0, "?"], header=True) == wanted
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert rows([packed, packed], [tf.int32, "?"], "GZIP", header=True) == wanted * 2
    assert rows(path, ["?"], header=True, exclude_cols=[0]) == [(x,) for _, x in wanted]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'1,"a', "without closing quoted field"),
        (b"1\n", "Expect 2 fields but have 1"),
        (b"x,a\n", "not a valid int32"),
        (b"\n1,a\n", "Expect 2 fields"),
        (b",a\n", "required but missing"),
    ],
)
def test_a_broken_row_is_told(tmp_path, content, said):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        rows(path, [tf.int32, ""])


def test_an_empty_file_has_no_rows_and_no_header(tmp_path):
    path = tmp_path / "a.csv"
    path.touch()
    assert rows(path, [0]) == []
    with pytest.raises(tf.errors.InvalidArgumentError, match="no header"):
        rows(path, [0], header=True)


def test_an_iterator_goes_on_within_a_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,x\n" + "".join(f'{i},"a\n{i}"\n' for i in range(5)))

    def make():
        return iter(tf.data.experimental.CsvDataset([path, path], [0, ""], header=True))

    for stop in range(10):
        first = make()
        for _ in range(stop):
            next(first)
        second = make()
        second.set_state(first.get_state())
        assert [int(n) for n, _ in second] == [*range(5), *range(5)][stop:]


def test_types_are_found_from_the_rows(path):
    first, second = batches(path, 2, shuffle=False)
    assert list(first) == ["id", "price", "name", "big", "dbl", "label"]
    types = [column.dtype for column in first.values()]
    assert types == [tf.int32, tf.float32, tf.string, tf.int64, tf.float64, tf.int32]
    assert first["price"].tolist() == [1.5, 0.0]
    assert first["big"].tolist() == [1, 5000000000]
    assert second["name"].tolist() == [b""]


def test_a_label_and_some_columns_are_chosen(path):
    chosen = ["label", "id"]
    ((columns, label), _) = batches(
        path, 2, shuffle=False, label_name="label", select_columns=chosen
    )
    assert {n: c.tolist() for n, c in columns.items()} == {"id": [1, 2]}
    assert label.tolist() == [0, 1]


def test_rows_repeat_in_whole_batches_and_in_a_seeded_order(path):
    make = tf.data.experimental.make_csv_dataset
    found = [
        [batch["id"].tolist() for batch in make(path, 2, shuffle_seed=3).take(3)]
        for _ in range(2)
    ]
    assert found[0] == found[1]
    assert sorted(number for batch in found[0] for number in batch) == [
        1,
        1,
        2,
        2,
        3,
        3,
    ]


def test_rows_that_cannot_be_read_are_left_out_if_that_is_wanted(path):
    with path.open("ab") as file:
        file.write(b"x,1,a,1,1,1\n4,1,a,1,1,1\n")
    kinds = [0, 0.0, "", tf.int64, tf.float64, 0]
    found = batches(path, 9, shuffle=False, ignore_errors=True, column_defaults=kinds)
    assert found[0]["id"].tolist() == [1, 2, 3, 4]
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a valid int32"):
        batches(path, 9, shuffle=False, column_defaults=kinds)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"label_name": "none"}, "label_name"),
        ({"select_columns": ["none"]}, "select_columns"),
        ({"header": False}, "column_names"),
        ({"column_names": ["a", "a", "b", "c", "d", "e"]}, "must differ"),
    ],
)
def test_columns_that_are_not_there_are_told(path, arguments, said):
    with pytest.raises(ValueError, match=said):
        batches(path, 2, **arguments)


def test_files_must_have_the_same_columns(path, tmp_path):
    (tmp_path / "z.csv").write_text("other\n1\n")
    with pytest.raises(ValueError, match=r"z.csv has different column names"):
        batches(str(tmp_path / "*.csv"), 2)
    with pytest.raises(ValueError, match="No files match"):
        batches(str(tmp_path / "none*"), 2)


def test_lines_are_decoded_one_by_one_or_in_batches(path):
    kinds = [[0], [0.5], [""], np.int64([0]), np.float64([0]), [0]]
    lines = tf.data.TextLineDataset(path).skip(1)

    def decode(line):
        return tf.io.decode_csv(line, kinds)

    (one,) = lines.map(decode).batch(9).as_numpy_iterator()
    (two,) = lines.batch(9).map(decode).as_numpy_iterator()
    for a, b in zip(one, two, strict=True):
        assert a.dtype == b.dtype and a.tolist() == b.tolist()


def test_a_column_of_empty_fields_is_text(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,c\n1,,NA\n2,,NA\n")
    table = tf.data.experimental.make_csv_dataset(
        path, 2, shuffle=False, na_value="NA", num_epochs=1
    )
    found = {name: x.tolist() for name, x in next(iter(table)).items()}
    assert found == {"a": [1, 2], "b": [b"", b""], "c": [b"", b""]}
