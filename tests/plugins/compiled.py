"""Stores compiled programs, so that equal programs are compiled once.

Tests compile thousands of small programs, and a third of them are equal to one that
another test compiled. `conftest.py` names the folder and lets every process read
programs there. Only the processes of pytest write: a process that a test starts may be
killed while it writes, and JAX does not notice half a file.
"""

import contextlib
import os
import pathlib
import tempfile

import jax
from jax._src import lru_cache

# A run stores about 35 MB for each version of JAX.
_MOST_BYTES = 300_000_000


def pytest_configure(config):
    """Has this process store what it compiles, if there is a folder for it."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    if folder and jax.config.values["jax_enable_compilation_cache"]:
        with contextlib.suppress(FileNotFoundError):  # Another stream removes them.
            remove_oldest(pathlib.Path(folder))
        setattr(lru_cache.LRUCache, "put", put)  # noqa: B010
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def put(self, key, value):
    """Stores a program under its name at once: no reader sees half of it."""
    path = pathlib.Path(self.path) / f"{key}{lru_cache._CACHE_SUFFIX}"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(value)
        os.replace(file.name, path)


def remove_oldest(folder):
    """Removes the files that were stored first, until the others fit."""
    found = [(f.stat(), f) for f in folder.glob("*") if f.is_file()]
    total = sum(s.st_size for s, _ in found)
    for status, file in sorted(found, key=lambda pair: pair[0].st_mtime):
        if total <= _MOST_BYTES:
            return
        file.unlink(missing_ok=True)
        total -= status.st_size
