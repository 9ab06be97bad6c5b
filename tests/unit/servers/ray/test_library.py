"""Programs that want Ray where it is not installed."""

import importlib.util
import sys

import pytest

import unisono
from unisono import distribute
from unisono._src.servers.ray import library


@pytest.mark.parametrize(
    "start",
    [
        lambda cluster: distribute.ParameterServerStrategy(
            distribute.cluster_resolver.SimpleClusterResolver(cluster)
        ),
        lambda cluster: distribute.Server(cluster, "worker", 0),
        lambda cluster: distribute.coordinator.RayCarrier(),
    ],
    ids=["strategy", "server", "carrier"],
)
def test_without_ray_the_error_says_what_to_install(monkeypatch, start):
    monkeypatch.setitem(sys.modules, "ray", None)
    cluster = unisono.train.ClusterSpec(
        {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    )
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'unisono\[ray\]'"):
        start(cluster)


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="needs Ray")
@pytest.mark.parametrize("module", library.PRIVATE)
def test_ray_has_every_private_name_that_is_used(module):
    library.load()
    names, why = library.PRIVATE[module]
    found = library.load_private(module)
    missing = [name for name in names if not hasattr(found, name)]
    assert not missing, f"this Ray has dropped {missing} of {module}: {why}."
