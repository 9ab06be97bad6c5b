"""Reaches the services of Google's cloud: its API and a machine's metadata."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

METADATA = "http://metadata.google.internal"
_SECONDS = 5.0
_MAX_BYTES = 65_536


def make_service(
    resolver: str,
    api: str,
    version: str,
    credentials: object,
    discovery_url: str | None = None,
) -> Any:
    """Returns a service of ``googleapiclient``.

    Args:
        resolver: the class that needs it, for the error message.
        api: the name of the API.
        version: the version of the API.
        credentials: ``"default"`` for those of the machine.
        discovery_url: where the API describes itself, if not at the usual place.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        import googleapiclient.discovery
    except ImportError:
        raise ImportError(
            f"{resolver} needs Google's API client: run `pip install "
            "google-api-python-client`, or pass service=."
        ) from None
    options: dict[str, Any] = {"cache_discovery": False}
    if credentials != "default":
        # Without the argument, the client finds the default credentials itself.
        options["credentials"] = credentials
    if discovery_url:
        options["discoveryServiceUrl"] = discovery_url
    return googleapiclient.discovery.build(api, version, **options)


def metadata(path: str, base: str = METADATA) -> str | None:
    """Returns an entry of this machine's metadata service; None where there is none."""
    # A proxy is another machine, and the service answers this machine alone.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(
        f"{base}/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"}
    )
    try:
        with opener.open(request, timeout=_SECONDS) as response:
            text: bytes = response.read(_MAX_BYTES)
            return text.decode("utf-8", "replace").strip()
    except (urllib.error.URLError, OSError):
        return None
