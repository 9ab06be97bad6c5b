"""Connections between workers and their coordinator are secured when JAX is told to."""

import subprocess

import jax
import pytest

from tests.multiprocess import harness
from unisono._src.workers import coordination_client

HAS_MTLS = hasattr(jax.config, "jax_mtls_cert_file")
with_mtls = pytest.mark.skipif(not HAS_MTLS, reason="this JAX has no mutual TLS")


def certificates(directory):
    """Makes an authority and one certificate for 127.0.0.1; returns the variables."""
    own = ["-newkey", "rsa:2048", "-nodes"]
    commands = [
        ["req", "-x509", *own, "-days", "2", "-keyout", "ca.key", "-out", "ca.pem",
         "-subj", "/CN=ca"],
        ["req", *own, "-keyout", "key.pem", "-out", "w.csr", "-subj", "/CN=w"],
        ["x509", "-req", "-in", "w.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
         "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "cert.pem"],
    ]  # fmt: skip
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for command in commands:
        subprocess.run(
            ["openssl", *command], cwd=directory, check=True, capture_output=True
        )
    files = {"CERT": "cert.pem", "KEY": "key.pem", "CA": "ca.pem"}
    return {f"JAX_MTLS_{k}_FILE": str(directory / v) for k, v in files.items()}


@with_mtls
@pytest.mark.timeout(120)
def test_workers_with_certificates_compute_together(tmp_path):
    secured = certificates(tmp_path)
    with harness.Group(tmp_path, 2, **secured) as group:
        plain = group.call("reduce")
        assert plain[0] == plain[1]
        address = group.addresses[0]
        shown = subprocess.run(
            ["openssl", "s_client", "-connect", address, "-alpn", "h2"],
            input=b"",
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert b"CN = w" in shown.stdout or b"CN=w" in shown.stdout, shown
    assert group.left_behind() == []


def test_half_of_the_files_is_an_error(monkeypatch):
    monkeypatch.setattr(
        coordination_client, "jax", _Options(jax_mtls_cert_file="cert.pem")
    )
    with pytest.raises(ValueError, match=r"jax_mtls_key_file and jax_mtls_ca_file not"):
        coordination_client.coordination_arguments()


def test_a_file_that_cannot_be_read_is_named(monkeypatch, tmp_path):
    missing = str(tmp_path / "missing.pem")
    names = ("jax_mtls_cert_file", "jax_mtls_key_file", "jax_mtls_ca_file")
    options = _Options(**dict.fromkeys(names, missing))
    monkeypatch.setattr(coordination_client, "jax", options)
    with pytest.raises(ValueError, match=r"jax_mtls_cert_file.*missing\.pem.*read"):
        coordination_client.coordination_arguments()


@pytest.mark.skipif(HAS_MTLS, reason="this JAX has mutual TLS")
def test_secure_connections_that_jax_lacks_are_refused(monkeypatch):
    monkeypatch.setenv("JAX_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS", "false")
    assert coordination_client.coordination_arguments() == {}
    monkeypatch.setenv("JAX_MTLS_CA_FILE", "ca.pem")
    with pytest.raises(RuntimeError, match="JAX_MTLS_CA_FILE asks for secure"):
        coordination_client.coordination_arguments()


class _Options:
    """Stands for `jax` with some of its options set."""

    def __init__(self, **given):
        names = coordination_client._OPTIONS
        self.config = type("Config", (), {n: given.get(n) for n in names})()
