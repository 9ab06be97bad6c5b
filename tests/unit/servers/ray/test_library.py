"""Programs that want Ray where it is not installed."""

import sys

import pytest

import unisono
from unisono import distribute


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
