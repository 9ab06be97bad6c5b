"""The one door to JAX's internals: what of `jax._src` and `jaxlib` is used, and why.

Each name is looked up by itself. One that the installed JAX does not have is an error
where it is used, not at `import unisono`; `find_missing` lists all of them. All are
there in JAX 0.10.2, 0.11.2 and 0.12.0, unless a comment says otherwise. What unisono
*changes* in JAX is on the page `docs/concepts/what-unisono-changes.md`.

The process of the coordination service (`workers/coordination_service`) does not load
JAX, so it takes its one name from `jaxlib` by itself.
"""

from __future__ import annotations

import dataclasses
import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, final

import jax

if TYPE_CHECKING:
    # It takes long to load.
    from jax.extend.core import Jaxpr

# What a group of names is for. An error says so, and tapes ask for theirs.
TAPES = "GradientTape"
TRACES = "variables in traced functions"
ARRAYS = "the fast paths of arrays"
PIECES = "arrays on several devices"
CAPTURES = "the check of 64-bit numbers that a function captures"
SETTINGS = "functions under JAX's settings"
WORKERS = "several workers"
NUMBERS = "messages about numbers that are not finite"
BACKENDS = "virtual devices"
STATEMENTS = "AutoGraph"
HOST_PROGRAMS = "compiled functions of datasets"


@final
@dataclasses.dataclass(frozen=True)
class Internal:
    """A private name of JAX that is used.

    Attributes:
        module: the module that has it.
        name: its name there; for an attribute of a class, with the class.
        purpose: what of unisono needs it.
        is_missing: whether the installed JAX does not have it.
    """

    module: str
    name: str
    purpose: str
    is_missing: bool


_used: list[Internal] = []


@final
class _Missing(type):
    """The class of what stands for a name that JAX does not have: its use raises.

    Nothing is an instance of a class that is not there, so `isinstance` may be asked.
    """

    why: str

    def _fail(cls, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(cls.why)

    __call__ = __getattr__ = __getitem__ = __iter__ = _fail


def _find(purpose: str, module: str, name: str) -> Any:
    """Returns what a module has under a name, or a stand-in that raises."""
    try:
        found = operator.attrgetter(name)(importlib.import_module(module))
    except (AttributeError, ImportError):
        why = (
            f"{purpose} needs {module}.{name}, which JAX {jax.__version__} does not "
            "have. Install JAX 0.10, 0.11 or 0.12."
        )
        found = _Missing(name, (), {"why": why})
    _used.append(Internal(module, name, purpose, isinstance(found, _Missing)))
    return found


def _find_public(name: str) -> Any:
    """Returns what is public in `jax.extend.core`, without loading it if possible.

    To load it takes some hundredths of the time of `import jax`, which all programs
    would pay.
    """
    found = _find(TRACES, _CORE, name)
    if isinstance(found, _Missing):
        _used.pop()
        found = getattr(importlib.import_module("jax.extend.core"), name)
    return found


def find_missing(purpose: str | None = None) -> list[str]:
    """Returns the names that the installed JAX does not have.

    Args:
        purpose: leave out what is for something else; None for all.
    """
    return [
        f"{used.module}.{used.name}"
        for used in _used
        if used.is_missing and purpose in (None, used.purpose)
    ]


def list_used() -> Sequence[Internal]:
    """Returns all names that are used."""
    return tuple(_used)


_CORE = "jax._src.core"
_AD = "jax._src.interpreters.ad"
_PARTIAL = "jax._src.interpreters.partial_eval"
_PXLA = "jax._src.interpreters.pxla"


class _TraceContext(Protocol):
    trace: jax.core.Trace

    def set_trace(self, trace: jax.core.Trace) -> None: ...


class ClosedProgram(Protocol):
    """A program with its constants. Its class has another name from JAX 0.12 on."""

    @property
    def jaxpr(self) -> Jaxpr:
        """The program, whose constants are inputs."""

    @property
    def consts(self) -> Sequence[jax.Array]:
        """The values of its constants."""

    @property
    def in_avals(self) -> Sequence[jax.core.ShapedArray]:
        """The shapes and types of its inputs."""


# Which trace the running code belongs to. There is no public way to ask.
trace_context: _TraceContext = _find(TRACES, _CORE, "trace_ctx")
is_top_level: Callable[[], bool] = _find(TRACES, _CORE, "trace_ctx.is_top_level")
set_current_trace: Callable[[jax.core.Trace], AbstractContextManager[None]]
set_current_trace = _find(TRACES, _CORE, "set_current_trace")
eval_context: Callable[[], AbstractContextManager[None]]
eval_context = _find(TRACES, _CORE, "eval_context")
to_concrete_value: Callable[[object], Any] = _find(TRACES, _CORE, "to_concrete_value")
EvalTrace: Any = _find(TRACES, _CORE, "EvalTrace")
JVPTrace: Any = _find(TRACES, _AD, "JVPTrace")
LinearizeTrace: Any = _find(TAPES, _AD, "LinearizeTrace")
BatchTrace: Any = _find(TRACES, "jax._src.interpreters.batching", "BatchTrace")
# The cache that outlives programs. It is cleared, or it grows without a limit.
trace_to_jaxpr: Any = _find(TRACES, _PARTIAL, "trace_to_jaxpr")
# The trace that a tracer belongs to; an attribute of every tracer.
trace_of = operator.attrgetter("_trace")
# From JAX 0.12 on, one class stands for open and closed programs.
_is_one_class = jax.__version_info__ >= (0, 12)
ClosedJaxpr: Callable[[Jaxpr, Sequence[Any]], ClosedProgram]
ClosedJaxpr = _find_public("Jaxpr" if _is_one_class else "ClosedJaxpr")
Primitive: Any = _find_public("Primitive")
jaxpr_as_fun: Callable[..., Callable[..., list[jax.Array]]]
jaxpr_as_fun = _find_public("jaxpr_as_fun")

# What Python asks of a traced array; `execution/conversion` listens.
ShapedArray = jax.core.ShapedArray
for _name in ("_bool", "_int", "_index", "_iter"):
    _find(STATEMENTS, _CORE, f"ShapedArray.{_name}")

# What a gradient tape is made of (docs/decisions/0024).
Literal: Any = _find(TAPES, _CORE, "Literal")
Var: Any = _find(TAPES, _CORE, "Var")
TraceTag: Any = _find(TAPES, _CORE, "TraceTag")
full_lower: Callable[[Any], Any] = _find(TAPES, _CORE, "full_lower")
new_jaxpr_eqn: Any = _find(TAPES, _CORE, "new_jaxpr_eqn")
no_effects: Any = _find(TAPES, _CORE, "no_effects")
LinearizeTracer: Any = _find(TAPES, _AD, "LinearizeTracer")
ValAccum: Any = _find(TAPES, _AD, "ValAccum")
Zero: Any = _find(TAPES, _AD, "Zero")
backward_pass: Any = _find(TAPES, _AD, "backward_pass3")
DynamicJaxprTrace: Any = _find(TAPES, _PARTIAL, "DynamicJaxprTrace")
dce_jaxpr: Any = _find(TAPES, _PARTIAL, "dce_jaxpr")
shard_args: Any = _find(TAPES, _PXLA, "shard_args")
shard_arg_handlers: dict[type, Any] = _find(TAPES, _PXLA, "shard_arg_handlers")
add_jaxvals_p: Any = _find(TAPES, "jax._src.ad_util", "add_jaxvals_p")
debug_info: Any = _find(TAPES, "jax._src.api_util", "debug_info")
current_source: Any = _find(TAPES, "jax._src.source_info_util", "current")

# The class of arrays. The fast paths compare with it: `isinstance(x, jax.Array)` takes
# longer, and is true for tracers.
ArrayImpl: type[jax.Array] = _find(ARRAYS, "jax._src.array", "ArrayImpl")
make_array: Callable[..., jax.Array] = ArrayImpl
# The property by which Python reads an array, and the pieces of one.
_find(WORKERS, "jax._src.array", "ArrayImpl._value")
_find(PIECES, "jax._src.array", "ArrayImpl._arrays")
pieces_of: Callable[[jax.Array], Sequence[jax.Array]] = operator.attrgetter("_arrays")
# JAX's public functions come to this one in the end, after questions that take longer
# than the transfer of a small array.
batched_device_put: Any = _find(PIECES, _PXLA, "batched_device_put")
transfer_guards: Any = _find(PIECES, "jax._src.config", "guard_lib")
# JAX's table of what is the type of an array of the host that a program takes in.
pytype_aval_mappings: dict[type, Any] = _find(CAPTURES, _CORE, "pytype_aval_mappings")

_states: Any = _find(SETTINGS, "jax._src.config", "config_states")
_SOURCES = "jax._src.source_info_util"
# The names that JAX gives to the operations of a thread.
operation_names: Any = _find(SETTINGS, _SOURCES, "_source_info_context")
user_frames: Callable[[Any], Iterator[Any]] = _find(NUMBERS, _SOURCES, "user_frames")
# Has JAX name the line before that of a file. `jax.extend` has it, too, but loads much.
hide_file: Callable[[str], None] = _find(ARRAYS, _SOURCES, "register_exclusion")

# The connection of this process to the coordination service, and what makes both.
distributed_state: Any = _find(WORKERS, "jax._src.distributed", "global_state")
make_client: Any = _find(WORKERS, "jaxlib._jax", "get_distributed_runtime_client")
make_service: Any = _find(WORKERS, "jaxlib._jax", "get_distributed_runtime_service")

backends_are_initialized: Callable[[], bool] = _find(
    BACKENDS, "jax._src.xla_bridge", "backends_are_initialized"
)
_bridge: Any = _find(BACKENDS, "jax._src", "xla_bridge")
make_cpu_client: Any = _find(HOST_PROGRAMS, "jaxlib.xla_client", "make_cpu_client")


def has_backends() -> bool:
    """Returns whether a backend has started, without a lock.

    Another thread may have held the lock of `backends_are_initialized` in a fork.
    """
    # JAX replaces the dictionary when all backends are cleared.
    return bool(getattr(_bridge, "_backends", {}))


class Setting(Protocol):
    """A setting of JAX, such as `jax_enable_x64`."""

    @property
    def value(self) -> Any:
        """The value that this thread has: its own, or that of the process."""

    def get_local(self) -> Any:
        """Returns the value that this thread has set, or a mark that it has none."""

    def set_local(self, value: Any) -> None:
        """Sets the value of this thread, or takes it away."""


@final
class _MissingSetting:
    """Stands for the settings of a JAX that keeps them elsewhere; each use raises."""

    @property
    def value(self) -> Any:
        return _states.value

    def get_local(self) -> Any:
        return _states.get_local

    def set_local(self, value: Any) -> None:
        _states.set_local(value)


_missing_setting = _MissingSetting()


def list_settings() -> list[Setting]:
    """Returns the settings that each thread may have for itself."""
    if find_missing(SETTINGS):
        return [_missing_setting]
    return [s for s in _states.values() if hasattr(s, "get_local")]


def find_setting(name: str) -> Setting:
    """Returns a setting by its name."""
    return _missing_setting if find_missing(SETTINGS) else _states[name]
