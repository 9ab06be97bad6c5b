"""Texts that must agree: the README, the pages, the examples and the code."""

import pathlib
import pickle
import re
import traceback

from tests.architecture import snapshot
from unisono import errors

ROOT = pathlib.Path(__file__).parents[2]
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_first_program_is_the_same_in_the_readme_the_site_and_the_examples():
    program = read("examples/first_steps.py").partition("# The program\n")[2]
    assert program
    for page in ("README.md", "docs/index.md"):
        assert f"\n{program}```" in read(page), page


def test_links_between_files_lead_somewhere():
    pages = [p for p in ROOT.glob("*.md")] + [*(ROOT / "docs").rglob("*.md")]
    pages += (ROOT / "examples").glob("*.md")
    missing = []
    for page in pages:
        if "api" in page.parts:  # The build writes these.
            continue
        for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            target = page.parent / link
            if not target.exists() and "reference/api/" not in target.as_posix():
                missing.append(f"{page.relative_to(ROOT)}: {link}")
    assert not missing


def test_the_code_names_decisions_that_exist():
    numbers = {p.name[:4] for p in (ROOT / "docs" / "decisions").glob("0*.md")}
    for path in (ROOT / "src").rglob("*.py"):
        named = re.findall(r"docs/decisions/(\d{4})", path.read_text(encoding="utf-8"))
        assert set(named) <= numbers, path


def test_errors_name_a_section_that_has_their_cause_and_remedy():
    page = read("docs/reference/errors.md")
    title = page.partition("\n")[0].removeprefix("# ")
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        calls = re.findall(
            r"""\badd_section\(\s*\w+Error\(.*\), "(.*?)"\s*\)""",
            path.read_text("utf-8"),
        )
        named.update(calls)
    assert "Mixed strategies" in named
    public = snapshot.public_modules()["unisono.errors"].__all__
    for name in (n for n in public if not n.isupper()):  # The others are codes.
        (told,) = traceback.format_exception_only(getattr(errors, name)("It broke."))[
            1:
        ]
        assert told == f'See "{title}: {name}" in the documentation of unisono.\n'
        named.add(name)
    for name in named:
        section = re.split(rf"\n##+ {name}\n", page)[1].partition("\n##")[0]
        assert "**Cause.**" in section and "**Remedy.**" in section, name


def test_notes_of_a_program_follow_the_one_of_the_documentation():
    class OwnError(errors.WorkerLostError):
        pass

    first, second = OwnError("It broke."), OwnError("It broke, too.")
    first.add_note("In epoch 3.")
    assert [note.split()[-1] for note in first.__notes__] == ["unisono.", "3."]
    assert second.__notes__ == first.__notes__[:1]
    copied = pickle.loads(pickle.dumps(errors.WorkerLostError("It broke.", worker=1)))
    assert len(copied.__notes__) == 1 and str(copied) == "It broke."


def test_every_environment_variable_is_described():
    page = read("docs/reference/environment.md")
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        named |= set(re.findall(r"UNISONO_[A-Z_]+", path.read_text(encoding="utf-8")))
    between_processes = {
        "UNISONO_NEWS_FD",
        "UNISONO_PROGRESS_FD",
        "UNISONO_RAY_NODE",
        "UNISONO_WORKER_MARK",
    }
    assert {n for n in named - between_processes if f"`{n}`" not in page} == set()
