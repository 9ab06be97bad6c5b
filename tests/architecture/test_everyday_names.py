"""The functions of TensorFlow's everyday names are those of their table."""

import sys

import unisono
from tests.architecture import everyday_names
from unisono._src.ops import table


def test_the_modules_are_written_from_the_table_as_it_is():
    made = everyday_names.files()
    stale = [
        p.name for p, text in made.items() if not everyday_names.is_current(p, text)
    ]
    there = {
        path
        for folder in ("names", "facades")
        for path in (everyday_names.OPS / folder).glob("*.py")
        if path.stem != "__init__"
    }
    stale += [path.name for path in there - made.keys()]
    assert not stale, (
        f"{stale} are not what the table says: run "
        "`python -m tests.architecture.everyday_names`."
    )


def test_the_page_of_differences_lists_those_of_the_table():
    page = everyday_names.PAGE.read_text(encoding="utf-8")
    assert page == everyday_names.with_differences(page), (
        "run `python -m tests.architecture.everyday_names`."
    )


def test_every_path_of_the_table_is_a_public_name():
    for path in table.NAMES:
        module = sys.modules["unisono"]
        for part in path.split("."):
            assert part in dir(module), path
            assert part in module.__all__, path
            module = getattr(module, part)


def test_no_path_of_the_table_stands_in_two_rows():
    paths = [
        path
        for rows in table.AREAS.values()
        for row in rows
        for path in (row.path, *row.also)
    ]
    assert len(paths) == len(set(paths))


def test_a_name_of_two_public_modules_is_one_function():
    assert unisono.math.add is unisono.add
    assert unisono.nn.sigmoid is unisono.sigmoid
