"""The words of a page's code blocks mean what docs/tools/README.md says."""

import importlib.util
import pathlib
import sys

import pytest

pytest.importorskip("yaml")
TOOLS = pathlib.Path(__file__).parents[2] / "docs" / "tools"


def load(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", TOOLS / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


blocks = load("blocks")
page_program = load("page_program")
terminal = load("terminal")


def run(*texts):
    """Runs the blocks of a page and returns what it shows of each."""
    program = page_program.PageProgram("page")
    found = blocks.find("\n".join(texts), "page")
    plain = [{**b.as_json(), "commands": blocks.commands(b.text)} for b in found]
    return [program.run(block) for block in plain]


def fence(info, *lines):
    return "\n".join([f"```{info}", *lines, "```"])


def test_the_blocks_of_a_page_are_one_program_and_show_what_they_print():
    told = run(fence("python", "x = 2"), fence("python show", "print(x + 1)"))
    assert told == [{}, {"text": "3\n"}]


def test_output_that_is_not_in_the_page_fails():
    assert run(fence("pycon", ">>> 1 + 1", "2")) == [{}]
    with pytest.raises(page_program.PageError, match="Expected"):
        run(fence("pycon", ">>> 1 + 1", "3"))
    with pytest.raises(page_program.PageError, match=r"page\.md:2: \$ echo yes"):
        run(fence("console", "$ echo yes", "no"))


def test_a_block_that_raises_fails_unless_the_page_says_so():
    told = run(fence("python raises=ValueError", "int('a')"))
    assert told[0]["text"].startswith("ValueError: invalid literal")
    with pytest.raises(page_program.PageError, match="ZeroDivisionError"):
        run(fence("python", "1 / 0"))
    with pytest.raises(page_program.PageError, match="was not raised"):
        run(fence("python raises=ValueError", "x = 1"))


def test_files_and_commands_work_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = run(
        fence("python file=a.py", "print('from a file')"),
        fence("console show", "$ cat a.py", "$ echo done"),
    )
    assert told[1] == {"console": "$ cat a.py\nprint('from a file')\n$ echo done\ndone"}
    with pytest.raises(page_program.PageError, match="ended with 3, not 0"):
        run(fence("console", "$ exit 3"))
    assert run(fence("console exit=3", "$ exit 3")) == [{}]


def test_a_picture_shows_what_a_command_prints_in_colours():
    said = "printf '\\033[31mred\\033[0m & rest'"
    (told,) = run(fence("console picture", f"$ {said}"))
    assert told == {"command": said, "picture": "\x1b[31mred\x1b[0m & rest"}
    drawn = terminal.draw("a <command>", told["picture"])
    assert 'terminal-red">red</text>' in drawn and "&amp;" in drawn
    assert "<command>" not in drawn


def test_blocks_of_other_systems_are_parsed():
    (found,) = blocks.find(fence("python foreign", "import torch"), "page")
    assert found.is_foreign
    for info, text in (("python", "def"), ("yaml", "a: [1"), ("bash", "if")):
        with pytest.raises(blocks.BlockError, match="page:2: foreign code"):
            blocks.find(fence(f"{info} foreign", text), "page")


@pytest.mark.parametrize("info", ["bash", "python shwo", "toml"])
def test_a_block_must_say_what_it_is(info):
    with pytest.raises(blocks.BlockError, match="page:2"):
        blocks.find(fence(info, "x"), "page")
