"""Small models are compiled again and again here: quickly, and each program once."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


@pytest.fixture(autouse=True, scope="package")
def quick_programs(tmp_path_factory):
    """Keeps compiled programs in a folder, and spends little on making them."""
    wanted = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("programs")),
        "jax_disable_most_optimizations": True,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
