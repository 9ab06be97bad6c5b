"""How the coordination service is started, and what it tells the worker."""

import subprocess
import sys

import pytest

from unisono._src.workers import coordination_client


@pytest.mark.parametrize(
    "address, bound",
    [
        ("localhost:7", "127.0.0.1:7"),
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("[::1]:7", "127.0.0.1:7"),
        ("10.1.2.3:7", "10.1.2.3:7"),
        ("node-3.cluster:7", "node-3.cluster:7"),
    ],
)
def test_the_coordinator_listens_only_where_it_is_known(address, bound, monkeypatch):
    monkeypatch.delenv("JAX_COORDINATOR_BIND_ADDRESS", raising=False)
    assert coordination_client.bind_address(address) == bound


def test_where_the_coordinator_listens_can_be_said(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "0.0.0.0:9")
    assert coordination_client.bind_address("10.1.2.3:7") == "0.0.0.0:9"


def test_the_service_tells_of_another_first_worker_once():
    command = [sys.executable, "-c", "print('process 7 on here')"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
        service.wait()
        assert coordination_client.read_claim(service) == "process 7 on here"
        # The end of the service is no claim.
        assert coordination_client.read_claim(service) is None


def test_a_service_that_says_nothing_is_not_waited_for():
    command = [sys.executable, "-c", "input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as service:
        assert coordination_client.read_claim(service) is None
        service.communicate(b"\n")
