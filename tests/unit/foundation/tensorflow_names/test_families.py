"""Each part of TensorFlow that is not here has a row that says what to use."""

from unisono._src.foundation.tensorflow_names import families, listing


def test_every_row_is_for_a_name_that_tensorflow_has():
    unknown = [r.path for r in families.ROWS if r.path and not listing.kind(r.path)]
    assert not unknown
    assert len({row.path for row in families.ROWS}) == len(families.ROWS)


def test_every_module_of_tensorflow_has_a_row():
    kinds, _ = listing._read()
    modules = [path for path, kind in kinds.items() if kind == "module"]
    assert not [path for path in modules if not families.find(path).path]


def test_rows_say_what_to_do_in_a_sentence():
    for row in families.ROWS:
        assert row.instead.endswith("."), row
        assert not row.purpose.endswith("."), row
