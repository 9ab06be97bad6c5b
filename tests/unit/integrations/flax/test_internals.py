"""What the integration uses of Flax' private names and members is there."""

import pytest

flax = pytest.importorskip("flax")

from unisono._src.integrations.flax import internals  # noqa: E402


def test_this_flax_has_every_name_and_member():
    missing = internals.find_missing()
    assert not missing, f"Flax {flax.__version__} has dropped {missing}"


def test_what_flax_has_dropped_is_named_and_breaks_nothing_else(monkeypatch):
    gone = {"gone": (("flax.nnx.gone", "flax.nnx.older"), "a test")}
    monkeypatch.setattr(internals, "NAMES", internals.NAMES | gone)
    monkeypatch.setattr(internals, "MEMBERS", internals.MEMBERS | {"_gone": "a test"})
    assert internals.find_missing() == ["_gone", "flax.nnx.gone"]
    with pytest.raises(AttributeError, match=r"has no flax\.nnx\.gone, .*a test"):
        _ = internals.gone
    assert internals.graphs.unflatten
