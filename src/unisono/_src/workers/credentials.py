"""Reads the options for mutual TLS between workers and their coordinator."""

from __future__ import annotations

import os
from typing import Any

import jax

# JAX's options, each with the argument of the coordination service that it sets.
_OPTIONS = {
    "jax_mtls_cert_file": "mtls_cert_file",
    "jax_mtls_key_file": "mtls_key_file",
    "jax_mtls_ca_file": "mtls_ca_file",
    "jax_mtls_peer_uri_prefix": "mtls_peer_uri_prefix",
    "jax_distributed_verify_secure_credentials": "verify_secure_credentials",
}
_FILES = ("jax_mtls_cert_file", "jax_mtls_key_file", "jax_mtls_ca_file")


def coordination_arguments() -> dict[str, Any]:
    """Returns the arguments that secure JAX's coordination service, if any are set.

    They come from JAX's own options (``jax_mtls_cert_file`` and the others, or the
    environment variables ``JAX_MTLS_CERT_FILE`` …).

    Raises:
        ValueError: some files are named and others are not, or one cannot be read.
        RuntimeError: the environment asks for secure connections, and this version of
            JAX has none.

    >>> coordination_arguments()
    {}
    """
    if not hasattr(jax.config, _FILES[0]):
        _refuse_secure_connections()
        return {}
    found = {name: getattr(jax.config, name) for name in _OPTIONS}
    given = [name for name in _FILES if found[name]]
    if given and len(given) < len(_FILES):
        missing = [name for name in _FILES if name not in given]
        raise ValueError(
            "Mutual TLS needs a certificate, its key and a CA bundle; "
            f"{_join_names(given)} {'is' if len(given) == 1 else 'are'} set and "
            f"{_join_names(missing)} not."
        )
    for name in given:
        if not os.access(found[name], os.R_OK):
            raise ValueError(
                f"The file of {name}, {found[name]!r}, cannot be read by this worker."
            )
    return {_OPTIONS[name]: value for name, value in found.items() if value}


def _refuse_secure_connections() -> None:
    """Raises `RuntimeError` if the environment asks for what this JAX lacks."""
    variables = [name.upper() for name in _OPTIONS]
    no = ("", "0", "f", "false", "n", "no", "off")
    asked = [v for v in variables if os.environ.get(v, "").lower() not in no]
    if asked:
        raise RuntimeError(
            f"{_join_names(asked)} {'asks' if len(asked) == 1 else 'ask'} for secure "
            f"connections between workers, which JAX {jax.__version__} does not have. "
            "Install a newer JAX (0.12 has them), or unset what asks for them."
        )


def _join_names(names: list[str]) -> str:
    """Returns names as a text, with commas and "and"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
