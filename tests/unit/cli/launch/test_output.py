"""Each task has a file of its own, and the display counts what has steps."""

import types

import pytest

from unisono._src.cli.launch import output, worker_process


def task(job, index, step=None, total=None):
    """Returns what an output reads of a worker process."""
    serves = job in ("ps", "worker") and total is None
    command = worker_process.Command(index, 1, (), {}, job=job, serves=serves)
    return types.SimpleNamespace(
        command=command, name=command.name, code=None, step=step, total=total
    )


@pytest.mark.feature("U02")
def test_tasks_of_several_jobs_with_one_index_have_a_file_each(tmp_path, capsys):
    with output.open_output(tmp_path, plain=True) as out:
        for job in ("chief", "ps", "worker"):
            for text in ("first", "second"):
                line = worker_process.Line(task(job, 0), "out", f"{text} of {job}")
                out.record(line)
                out.show_line(line)
        out.note("all are there.")
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {
        f"{job}-0.log": f"first of {job}\nsecond of {job}\nunisono: all are there.\n"
        for job in ("chief", "ps", "worker")
    }
    assert capsys.readouterr().out == ""


@pytest.mark.feature("U02")
@pytest.mark.parametrize(
    ("tasks", "shown"),
    [
        ([("worker", 0, 3, 8), ("worker", 1, 5, 8)], ("2 of 2 workers", "step 3/8")),
        ([("chief", 0, 3, 8), ("ps", 0), ("worker", 0)], ("3 of 3 tasks", "step 3/8")),
    ],
)
def test_the_display_shows_the_steps_of_those_that_have_any(tasks, shown):
    display = output.Display()
    try:
        display.update([task(*each) for each in tasks])
        (row,) = display._progress.tasks
        count, steps = shown
        assert (row.description, row.fields["steps"]) == (f"{count} running", steps)
        assert (row.completed, row.total) == (3, 8)
    finally:
        display.close()
