"""The private names of JAX that the package uses."""

import subprocess
import sys

import jax
import pytest

from unisono._src.foundation import jax_internals

# Imports the package while every private name that it uses seems to be missing.
WITHOUT = """
import operator
import jax
kept = operator.attrgetter

def refuse(name, *names):
    def find(owner):
        if getattr(owner, "__name__", "").startswith(("jax._src", "jaxlib")):
            raise AttributeError(name)
        return kept(name, *names)(owner)
    return find

operator.attrgetter = refuse
from unisono._src.foundation import jax_internals
operator.attrgetter = kept
assert len(jax_internals.find_missing()) == len(jax_internals.list_used()) > 30
import unisono
try:
    unisono.function(lambda: 1.0)()
except NotImplementedError as error:
    print(error)
"""


def test_jax_has_every_private_name_that_is_used():
    missing = jax_internals.find_missing()
    assert not missing, (
        f"JAX {jax.__version__} has dropped {missing}. Find what replaced them, and "
        "change foundation/jax_internals.py."
    )


def test_names_that_jax_drops_do_not_break_the_import():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"which JAX {jax.__version__} does not have. Install JAX 0.10" in done.stdout


def test_a_name_that_is_missing_raises_where_it_is_used():
    absent = jax_internals._find("a test", "jax._src.core", "NoSuchName")
    jax_internals._used.pop()
    assert not isinstance(3, absent)
    for use in (absent, lambda: absent.attribute, lambda: absent["x"]):
        with pytest.raises(NotImplementedError, match=r"jax._src.core.NoSuchName"):
            use()
