"""Settings of TensorFlow's runtime without effect here; they are kept and reported.

XLA compiles every step and has its own pool of threads, so none of them changes what a
program computes or how fast.
"""

from __future__ import annotations

import logging
from typing import ClassVar, final

from unisono._src.foundation.tensorflow_names.everyday import everyday_name

_log = logging.getLogger("unisono")


@final
class _Settings:
    """The values that the program has set."""

    jit = False
    inter_op = 0
    intra_op = 0
    options: ClassVar[dict[str, bool]] = {}
    told: ClassVar[set[str]] = set()


def tell_once(name: str, instead: str) -> None:
    """Says in the log, once, that a setting has no effect.

    Args:
        name: the name of the function that was called.
        instead: what happens, or what to do instead.
    """
    if name not in _Settings.told:
        _Settings.told.add(name)
        _log.info("%s has no effect: %s", name, instead)


@everyday_name("config.optimizer.set_jit", difference="The setting has no effect.")
def set_jit(enabled: bool | str) -> None:
    """Stores the setting, which has no effect: XLA compiles every `function`.

    Args:
        enabled: True or ``"autoclustering"``, or False.

    >>> import unisono
    >>> unisono.config.optimizer.set_jit(True)
    >>> unisono.config.optimizer.get_jit()
    'autoclustering'
    """
    _Settings.jit = enabled in (True, "autoclustering")
    tell_once("config.optimizer.set_jit", "XLA compiles every unisono.function.")


@everyday_name("config.optimizer.get_jit")
def get_jit() -> str:
    """Returns the setting of `set_jit`: ``"autoclustering"`` or an empty string.

    >>> import unisono
    >>> unisono.config.optimizer.set_jit(False)
    >>> unisono.config.optimizer.get_jit()
    ''
    """
    return "autoclustering" if _Settings.jit else ""


@everyday_name(
    "config.optimizer.set_experimental_options", difference="The setting has no effect."
)
def set_experimental_options(options: dict[str, bool]) -> None:
    """Stores options of TensorFlow's graph optimizer, which have no effect.

    Args:
        options: the names of rewrites, and whether they are enabled.

    >>> import unisono
    >>> unisono.config.optimizer.set_experimental_options({"remapping": False})
    """
    _Settings.options.update(options)
    tell_once("config.optimizer.set_experimental_options", "XLA optimizes programs.")


@everyday_name("config.optimizer.get_experimental_options")
def get_experimental_options() -> dict[str, bool]:
    """Returns the options that were passed to `set_experimental_options`.

    >>> import unisono
    >>> unisono.config.optimizer.set_experimental_options({"remapping": True})
    >>> unisono.config.optimizer.get_experimental_options()["remapping"]
    True
    """
    return dict(_Settings.options)


_THREADS = "XLA chooses the number of its threads."


@everyday_name(
    "config.threading.set_inter_op_parallelism_threads",
    difference="The setting has no effect.",
)
def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Stores the number, which has no effect: XLA chooses its number of threads.

    >>> import unisono
    >>> unisono.config.threading.set_inter_op_parallelism_threads(4)
    """
    _Settings.inter_op = int(num_threads)
    tell_once("config.threading.set_inter_op_parallelism_threads", _THREADS)


@everyday_name("config.threading.get_inter_op_parallelism_threads")
def get_inter_op_parallelism_threads() -> int:
    """Returns the number that was set; 0 if no number was set.

    >>> import unisono
    >>> unisono.config.threading.set_inter_op_parallelism_threads(4)
    >>> unisono.config.threading.get_inter_op_parallelism_threads()
    4
    """
    return _Settings.inter_op


@everyday_name(
    "config.threading.set_intra_op_parallelism_threads",
    difference="The setting has no effect.",
)
def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Stores the number, which has no effect: XLA chooses its number of threads.

    >>> import unisono
    >>> unisono.config.threading.set_intra_op_parallelism_threads(4)
    """
    _Settings.intra_op = int(num_threads)
    tell_once("config.threading.set_intra_op_parallelism_threads", _THREADS)


@everyday_name("config.threading.get_intra_op_parallelism_threads")
def get_intra_op_parallelism_threads() -> int:
    """Returns the number that was set; 0 if no number was set.

    >>> import unisono
    >>> unisono.config.threading.set_intra_op_parallelism_threads(4)
    >>> unisono.config.threading.get_intra_op_parallelism_threads()
    4
    """
    return _Settings.intra_op
