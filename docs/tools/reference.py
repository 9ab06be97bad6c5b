"""Sphinx extension: a page for each public module and class, from their docstrings.

The page of a module is an overview: its classes in a table, and its functions,
exceptions and values with all that there is to say. The pages are written before Sphinx
reads, into ``docs/reference/api``, which git ignores. The build fails if a public name
is on none of them, or has no docstring.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

import examples
from tests.architecture import snapshot
from unisono._src.foundation import public_names

HERE = pathlib.Path(__file__).parents[1] / "reference" / "api"
_INDEX = """# Public names

Every name has TensorFlow's path: `tf.distribute.MirroredStrategy` is
`unisono.distribute.MirroredStrategy`. Examples on these pages are run by `make test`.

| module | what is in it |
| --- | --- |
{rows}

```{{toctree}}
:hidden:
{modules}
```
"""


@functools.cache
def _modules() -> dict[str, types.ModuleType]:
    found: dict[str, types.ModuleType] = snapshot.public_modules()
    return found


def _canonical(module: str, name: str, value: Any) -> str:
    """Returns the path under which an object of a module is described."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    own = getattr(value, "__module__", None)
    try:
        is_published = value in public_names.homes
    except TypeError:  # An object without a hash.
        is_published = False
    if is_published and own in _modules() and own != module:
        called = value.__qualname__
        if called in _modules()[own].__all__:
            return f"{own}.{called}"
    return f"{module}.{name}"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0]


class _Names:
    """The names of a module by what its page does with them."""

    def __init__(self, name: str, module: types.ModuleType) -> None:
        self.modules: list[str] = []
        self.classes: list[str] = []
        self.others: list[str] = []
        self.aliases: list[str] = []
        self.values: list[str] = []
        for each in sorted(module.__all__):
            self._add(name, each, getattr(module, each))

    def _add(self, name: str, each: str, value: Any) -> None:
        path, known = f"{name}.{each}", _canonical(name, each, value)
        if isinstance(value, types.ModuleType) and value.__name__ in _modules():
            said = f"- [`{path}`]({value.__name__}.md): {_first_line(value)}"
            self.modules.append(said)
        elif isinstance(value, types.ModuleType):
            self.values.append(f"| `{path}` | the module `{value.__name__}` |")
        elif known != path:
            self.aliases.append(f"| `{path}` | {{py:obj}}`{known}` |")
        elif _has_page(value):
            self.classes.append(path)
        elif inspect.isclass(value) or inspect.isroutine(value) or callable(value):
            self.others += _directive(path, value)
        else:
            self.values.append(f"| `{path}` | `{value!r}` |")


def _has_page(value: Any) -> bool:
    """Returns whether it is a class with a page of its own.

    Values of an enumeration and exceptions are a line or two on their module's page.
    """
    return (
        inspect.isclass(value)
        and not issubclass(value, enum.Enum | BaseException)
        and value.__module__.partition(".")[0] == "unisono"
    )


def _page(name: str, module: types.ModuleType) -> str:
    """Returns the page of a module, in Markdown with directives of autodoc."""
    said = [f"# {name}", "", inspect.getdoc(module) or "", ""]
    said = [line.replace("``", "`") for line in said]
    names = _Names(name, module)
    if names.modules:
        said += ["## Modules", "", *names.modules, ""]
    if names.classes:
        said += ["## Classes", "", "| class | what it is |", "| --- | --- |"]
        for path in names.classes:
            told = _first_line(getattr(module, path.rpartition(".")[2]))
            told = told.replace("``", "`").replace("|", r"\|")
            said.append(f"| [`{path.rpartition('.')[2]}`]({path}.md) | {told} |")
        said += ["", "```{toctree}", ":hidden:", "", *names.classes, "```", ""]
    if names.others:
        said += ["## Functions and other names", "", "````{eval-rst}"]
        said += [*names.others, "````", ""]
    if names.aliases:
        said += ["## Further names", "", "| name | is |", "| --- | --- |"]
        said += [*names.aliases, ""]
    if names.values:
        said += ["## Values", "", "| name | is |", "| --- | --- |", *names.values, ""]
    return "\n".join(said)


def _class_pages(name: str, module: types.ModuleType) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of the page of each class of a module."""
    for path in _Names(name, module).classes:
        short = path.rpartition(".")[2]
        cls = getattr(module, short)
        said = [f"# {short}", "", f"In [`{name}`]({name}.md).", ""]
        said += ["````{eval-rst}", *_directive(path, cls), "````", ""]
        inherited = list(_inherited(cls))
        if inherited:
            said += ["## Inherited", "", *inherited, ""]
        yield f"{path}.md", "\n".join(said)


def _inherited(cls: type) -> Iterator[str]:
    """Yields a line for each public base class, with the members that it gives."""
    told = {name for name in vars(cls) if not name.startswith("_")}
    for base in cls.__mro__[1:]:
        if base not in public_names.homes:
            continue
        where = _canonical(base.__module__, base.__qualname__, base)
        names = [name for name in _members(base) if name not in told]
        told |= set(names)
        if names:
            links = ", ".join(f"{{py:obj}}`{n} <{where}.{n}>`" for n in names)
            yield f"- From {{py:obj}}`{where}`: {links}"


def _directive(path: str, value: Any) -> list[str]:
    if inspect.isclass(value) and value.__module__.partition(".")[0] != "unisono":
        return [f".. py:data:: {path}", "", f"   The type ``{value.__name__}``.", ""]
    if not inspect.isclass(value):
        if not inspect.isroutine(value):
            return [f".. autodata:: {path}", "   :no-value:", ""]
        return [f".. autofunction:: {path}", ""]
    if issubclass(value, enum.Enum):
        values = ", ".join(f"``{name}``" for name in value.__members__)
        return [
            f".. autoclass:: {path}()",
            "   :no-members:",
            "",
            f"   Values: {values}.",
            "",
        ]
    kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    said = [f".. {kind}:: {path}"]
    members = list(_members(value))
    if members:
        said += [f"   :members: {', '.join(members)}", "   :inherited-members: object"]
    return [*said, ""]


def _members(cls: type) -> Iterator[str]:
    """Yields the documented members that no public base class describes already."""
    public = {base for base in cls.__mro__[1:] if base in public_names.homes}
    told = {name for base in public for name in dir(base)}
    for name in sorted(dir(cls)):
        if name.startswith("_"):
            continue
        owner = next(base for base in cls.__mro__ if name in vars(base))
        is_ours = owner.__module__.partition(".")[0] == "unisono"
        value = inspect.getattr_static(cls, name)
        is_documented = inspect.isroutine(value) or isinstance(
            value, property | functools.cached_property | classmethod | staticmethod
        )
        if is_ours and is_documented and (owner is cls or name not in told):
            yield name


def write_pages(app: Any) -> None:
    """Writes the page of each public module, and removes those of former ones."""
    HERE.mkdir(parents=True, exist_ok=True)
    pages = {f"{name}.md": _page(name, module) for name, module in _modules().items()}
    for name, module in _modules().items():
        pages.update(_class_pages(name, module))
    rows = "\n".join(
        f"| [`{name}`]({name}.md) | {_first_line(module).replace('``', '`')} |"
        for name, module in _modules().items()
    )
    pages["index.md"] = _INDEX.format(rows=rows, modules="\n".join(_modules()))
    for path in HERE.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = HERE / name
        # Sphinx reads again what is newer, so an equal page is left alone.
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")


_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_COLON = "\ue000"  # A character that no docstring has.


def _quote(text: str) -> str:
    return _CODE.sub(lambda found: f"``{' '.join(found[1].split())}``\\ ", text)


def prepare(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Changes a docstring before Napoleon reads it.

    Examples get the imports that they lack. Code may go on in the next line. And the
    first line of a property is a sentence, of which Napoleon would take what comes
    before a colon for a type. The page is read again when the file of the docstring
    or a tool changes.
    """
    with contextlib.suppress(TypeError):  # It is a value, which has no file.
        app.env.note_dependency(inspect.getsourcefile(inspect.unwrap(value)) or "")
    for tool in (__file__, examples.__file__):
        app.env.note_dependency(tool)
    examples.add_imports(value, lines)
    parts = "\n".join(lines).split("\n\n")
    text = "\n\n".join(p if p.lstrip().startswith(">>>") else _quote(p) for p in parts)
    if what in ("property", "attribute"):
        text = text.replace(":", _COLON)
    lines[:] = text.split("\n")


def restore(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Puts the colons back that were hidden from Napoleon."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def check(app: Any, env: Any) -> None:
    """Fails if a public name is on no page, or has no docstring."""
    objects = env.get_domain("py").objects
    missing = []
    for name, module in _modules().items():
        for each in module.__all__:
            value, path = getattr(module, each), f"{name}.{each}"
            known = _canonical(name, each, value)
            if isinstance(value, types.ModuleType) or not callable(value):
                continue
            if known not in objects:
                missing.append(f"{path} is on no page")
            elif not inspect.getdoc(value):
                missing.append(f"{path} has no docstring")
    if missing:
        raise RuntimeError("Public names without a page:\n" + "\n".join(missing))


# The parameters of a signature of several lines, as Sphinx writes them.
_LINES = re.compile(
    r'(?<=<span class="sig-paren">\(</span>)\s*<dl>(.*?)</dl>', re.DOTALL
)


def mend_signatures(
    _app: Any, _page: str, _template: str, context: dict[str, Any], _tree: object
) -> None:
    """Makes plain lines of parameters, which Sphinx writes as a list without terms."""

    def lines(found: re.Match[str]) -> str:
        text = found[1].replace("<dd>", '<span class="sig-line">')
        return text.replace("</dd>", "</span>")

    if "body" in context:
        context["body"] = _LINES.sub(lines, context["body"])


def setup(app: Any) -> dict[str, bool]:
    """Registers the extension."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", prepare, priority=400)
    app.connect("autodoc-process-docstring", restore, priority=600)
    app.connect("env-check-consistency", check)
    app.connect("html-page-context", mend_signatures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
