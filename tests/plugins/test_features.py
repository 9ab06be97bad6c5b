"""The feature report says correctly which rows are proven."""

import pytest

from tests.plugins import features

PLUGIN = ("-p", "tests.plugins.features", "-p", "no:cacheprovider")


@pytest.fixture
def run(pytester):
    """Returns a function that runs a test file under the plugin alone."""

    def run_file(text, *options):
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess(*PLUGIN, *options)

    return run_file


def test_every_row_of_the_table_has_an_id_an_area_and_a_check():
    rows = features.read_table().values()
    assert len(rows) == 196
    assert all(row.id and row.area and row.capability and row.check for row in rows)


def test_a_row_is_proven_by_a_test_that_passes(run):
    result = run(
        """
        import pytest

        @pytest.mark.feature("A01", "A02")
        @pytest.mark.parametrize("n", [1, 2])
        def test_strategy(n):
            pass
        """,
        "--features",
    )
    result.stdout.fnmatch_lines(
        [
            "A01  proven *",
            "*test_strategy (2 passed)",
            "A02  proven *",
            "A03  no test *",
        ]
    )
    result.stdout.fnmatch_lines(["2 of 196 rows proven (0 failed, 0 not run, 194 *"])


def test_a_row_is_not_proven_while_one_of_its_cases_fails(run):
    result = run(
        """
        import pytest

        @pytest.mark.feature("A01")
        @pytest.mark.parametrize("n", [1, 2])
        def test_strategy(n):
            assert n == 1
        """,
        "--features",
    )
    result.stdout.fnmatch_lines(["A01  FAILED *", "*strategy (1 failed, 1 passed)"])
    result.stdout.fnmatch_lines(["0 of 196 rows proven (1 failed*"])


def test_a_row_whose_only_test_is_skipped_counts_as_not_run(run):
    result = run(
        """
        import pytest

        @pytest.mark.feature("A01")
        @pytest.mark.skipif(True, reason="no accelerator")
        def test_strategy():
            pass
        """,
        "--features",
    )
    result.stdout.fnmatch_lines(["A01  not run *"])


def test_an_unknown_row_stops_the_collection_and_is_named(run):
    result = run(
        """
        import pytest

        @pytest.mark.feature("Z99")
        def test_strategy():
            pass
        """
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*features.json does not have*", "*'Z99'"])


def test_without_the_option_nothing_is_printed(run):
    result = run("def test_nothing(): pass")
    assert "rows proven" not in result.stdout.str()
