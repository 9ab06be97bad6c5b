"""The source files follow the rules that can be checked in a syntax tree.

`make layout` checks which module may import which, and `make lint` checks complexity.
"""

import ast
import collections
import tomllib

import unisono
from tests.architecture import sources

# One idea per module is the rule; a module this long, docstrings left out, has more.
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 50
# How a public module gets the names that load on first use, and `__all__` (PEP 562).
_SERVE = "_lazy_names.serve(__name__)"

# Loaded on first use, so that `import unisono` costs no more than jax and numpy.
LOADED_ON_FIRST_USE = frozenset(
    {"absl", "etils", "flax", "grain", "greenlet", "keras", "optax", "orbax", "ray"}
    | {"google"}  # Protocol Buffers.
    | {"google_crc32c", "rich", "tensorstore", "typer"}
    | {"googleapiclient", "kubernetes", "mpi4py"}  # Clients of a cluster's services.
    | {"PIL", "simplejpeg"}  # Decoders of image files.
)

# The only folders that may import these packages.
ROOMS = {
    "flax": ("_src/integrations/",),
    "keras": ("_src/integrations/", "_src/servers/keras_fit"),
    "ray": ("_src/servers/ray/",),
}

UNSAFE_LOADERS = frozenset({"cloudpickle", "dill", "marshal", "pickle", "shelve"})


def test_no_module_is_longer_than_its_budget():
    long = {
        source.name: lines
        for source in sources.all_sources()
        if (lines := sources.count_code(source)) > MAX_MODULE_LINES
    }
    assert not long, (
        f"expected at most {MAX_MODULE_LINES} lines of code per module, received "
        f"{long}; "
        "split by reason to change."
    )


# Import-linter does not count imports for types. These go up, by module, and say what a
# higher room puts into an object of a lower one; a new one is a decision.
UPWARD_TYPES = {
    "foundation/ambient.py": {
        "execution.contexts",
        "execution.function",
        "machines.topology",
        "state.frames",
        "state.storage",
        "strategies.base",
        "values.jax_tapes",
        "values.ports",
    },
}


def upward_types(source):
    """Returns the modules of higher rooms that a module imports for types only."""
    heights, own = sources.heights(), source.name.removeprefix("src/unisono/_src/")
    found = {}
    for module, name in sources.imports_for_types(source.tree):
        target = module.removeprefix("unisono._src.")
        path = target.replace(".", "/") + "/"
        above, below = sources.room_of(path, own), sources.room_of(own, path)
        is_known = above in heights and below in heights
        if is_known and heights[above] > heights[below]:
            found.setdefault(target, set()).add(name)
    return found


def test_imports_for_types_that_go_up_are_listed():
    found = {
        source.name.removeprefix("src/unisono/_src/"): set(modules)
        for source in sources.all_sources()
        if not source.is_facade and (modules := upward_types(source))
    }
    assert found == UPWARD_TYPES, (
        "expected imports under TYPE_CHECKING to go up only where UPWARD_TYPES says; "
        f"received {found}. Declare a protocol in the lower room, or list the import."
    )


def test_no_public_class_needs_an_import_for_types_that_goes_up():
    # `typing.get_type_hints` cannot find such a name.
    used = {
        f"{source.name}:{node.lineno}": name
        for source in sources.all_sources()
        if not source.is_facade
        for modules in [upward_types(source)]
        if modules
        for node in _public_definitions(source.tree)
        for name in set().union(*modules.values())
        if any(getattr(n, "id", None) == name for n in ast.walk(node))
    }
    assert not used, f"expected public classes to name what they import, got {used}."


def _public_definitions(tree):
    """Yields the classes and functions of a module that are given to `publish`."""
    published = {
        ast.unparse(given)
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func).endswith("publish")
        for given in (*node.value.args, *(k.value for k in node.value.keywords))
    }
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in published:
            yield node


# Test modules that test a whole room instead of one module.
WHOLE_ROOMS = frozenset(
    {
        "autograph/test_recorded.py",
        "cluster/resolvers/test_cloud.py",
        "cluster/resolvers/test_mpi_and_ray.py",
        "input/api/test_failures.py",
        "input/test_dataset_programs.py",
        "ops/images/test_recorded.py",
        "ops/test_recorded.py",
        "ops/text/test_recorded.py",
        "saving/format/test_format.py",
        "strategies/test_tpu_state.py",
    }
)


def test_unit_tests_stand_where_the_modules_stand_that_they_test():
    tests = sources.ROOT / "tests" / "unit"
    strays = [
        name
        for path in tests.rglob("test_*.py")
        if (name := path.relative_to(tests).as_posix()) not in WHOLE_ROOMS
        and not (sources.PACKAGE / "_src" / name.replace("test_", "", 1)).is_file()
    ]
    assert not strays, (
        "expected each tests/unit/ROOM/test_MODULE.py to be named after a module of "
        f"that room, received {strays}; move it, or list it in WHOLE_ROOMS."
    )


# Rooms in which each module is guarded by its namesake; this list only gets longer.
ROOMS_WITH_NAMESAKES = ("machines", "state", "values")
# Modules of these rooms that are on their way to another room.
LEAVING = frozenset({"state/server_zeros.py", "state/servers.py"})


def test_what_guards_a_module_is_found_in_its_namesake():
    unguarded = [
        name
        for room in ROOMS_WITH_NAMESAKES
        for path in (sources.PACKAGE / "_src" / room).rglob("*.py")
        if path.name != "__init__.py"
        for name in [path.relative_to(sources.PACKAGE / "_src").as_posix()]
        if name not in LEAVING
        if not (
            sources.ROOT / "tests/unit" / name.replace(path.name, f"test_{path.name}")
        ).is_file()
    ]
    assert not unguarded, (
        "expected tests/unit/ROOM/test_MODULE.py for each module of "
        f"{ROOMS_WITH_NAMESAKES}, received none for {unguarded}."
    )


def test_no_two_classes_of_a_room_have_the_same_name():
    places = collections.defaultdict(list)
    for source in sources.all_sources():
        room = source.name.removeprefix("src/unisono/_src/").partition("/")[0]
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                name = room, node.name.lstrip("_")
                places[name].append(f"{source.name}:{node.lineno}")
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared, (
        "expected each class to have a name of its own in its room, a leading "
        f"underscore left out, received {shared}; name each after what it is."
    )


def test_no_function_is_longer_than_its_budget():
    long = {
        f"{source.name}:{function.lineno} {function.name}": lines
        for source in sources.all_sources()
        for function in sources.functions_of(source.tree)
        if (lines := sources.count_lines(function)) > MAX_FUNCTION_LINES
    }
    assert not long, (
        f"expected at most {MAX_FUNCTION_LINES} lines per function without its "
        f"docstring, received {long}; name the parts and call them."
    )


def test_functions_import_only_packages_that_load_on_first_use():
    hidden = {
        f"{source.name}:{line}": package
        for source in sources.all_sources()
        for function in sources.functions_of(source.tree)
        for line, package in sources.imported_packages(function)
        if package not in LOADED_ON_FIRST_USE
    }
    assert not hidden, (
        "expected imports at the top of the module, except of "
        f"{sorted(LOADED_ON_FIRST_USE)}; received {hidden}. A cycle is a sign that "
        "something lives in the wrong room."
    )


def test_packages_with_a_room_of_their_own_are_imported_nowhere_else():
    strays = {
        f"{source.name}:{line}": package
        for source in sources.all_sources()
        for line, package in sources.imported_packages(source.tree)
        if package in ROOMS and not any(room in source.name for room in ROOMS[package])
    }
    assert not strays, f"expected each of {ROOMS} in its room, received {strays}."


def test_private_names_of_jax_come_through_one_module():
    # The process of the coordination service does not load JAX.
    allowed = {"foundation/jax_internals.py", "workers/coordination_service.py"}
    found = {
        source.name.partition("_src/")[2]
        for source in sources.all_sources()
        if "jax._src" in source.text or "from jaxlib" in source.text
    }
    assert found == allowed


def test_nothing_loads_a_format_that_can_run_code():
    unsafe = {
        f"{source.name}:{line}": package
        for source in sources.all_sources()
        for line, package in sources.imported_packages(source.tree)
        if package in UNSAFE_LOADERS
    }
    assert not unsafe, f"expected no import of {sorted(UNSAFE_LOADERS)}, got {unsafe}."


def test_only_the_ambient_module_keeps_state_per_thread():
    stores = {"ContextVar", "contextvars.ContextVar", "threading.local"}
    keepers = {
        source.name
        for source in sources.all_sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in stores
    }
    assert keepers <= {"src/unisono/_src/foundation/ambient.py"}, (
        f"expected state per thread in ambient.py alone, received {keepers}."
    )


def test_public_modules_hold_re_exports_only():
    logic = {
        f"{source.name}:{node.lineno}": type(node).__name__
        for source in sources.all_sources()
        if source.is_facade
        for node in source.tree.body
        if not _is_re_export(node)
    }
    assert not logic, (
        "expected a docstring, imports and aliases in public modules, "
        f"received {logic}; move the logic to unisono/_src."
    )


def test_public_modules_end_by_serving_their_names():
    others = {
        source.name
        for source in sources.all_sources()
        if source.is_facade and ast.unparse(source.tree.body[-1]) != _SERVE
    }
    # The names of Keras are found in another way, and a program has none.
    assert {name.split("/")[2] for name in others} == {"keras", "__main__.py"}, others


def test_the_version_stands_in_one_place():
    made = tomllib.loads((sources.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in made["project"]
    assert made["project"]["dynamic"] == ["version"]
    attribute = {"attr": "unisono.__version__"}
    assert made["tool"]["setuptools"]["dynamic"]["version"] == attribute
    # If it were not a literal, a build would import the package, and with it JAX.
    tree = ast.parse((sources.PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    literals = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "__version__"
        and isinstance(node.value, ast.Constant)
    ]
    assert literals == [unisono.__version__]


def _is_re_export(node):
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr):  # An integration may take effect on import.
        called = ast.unparse(node)
        is_install = called.endswith(".install()") or called == _SERVE
        return is_install or isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        if test == "_typing.TYPE_CHECKING" and not node.orelse:
            return all(map(_is_re_export, node.body))
        return test == "__name__ == '__main__'"
    if isinstance(node, ast.Assign):
        names = [ast.unparse(target) for target in node.targets]
        is_alias = isinstance(node.value, ast.Attribute | ast.Name)
        return is_alias or all(name.startswith("_") for name in names)
    return False
