"""Finds the cluster of an instance group of Google Compute Engine.

Reaches the services of Google's cloud: its API and a machine's metadata.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.cluster.resolvers import base

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


class GCEClusterResolver(base.ClusterResolver):
    """Asks Compute Engine for the running instances of a group.

    >>> from unittest import mock
    >>> api = mock.MagicMock()  # Your programs leave `service` out.
    >>> listed = {"items": [{"instance": "zones/z/instances/first"}]}
    >>> api.instanceGroups().listInstances().execute.return_value = listed
    >>> api.instanceGroups().listInstances_next.return_value = None
    >>> found = {"networkInterfaces": [{"networkIP": "10.0.0.1"}]}
    >>> api.instances().get().execute.return_value = found
    >>> GCEClusterResolver("project", "zone", "group", 8470, service=api).master()
    'grpc://10.0.0.1:8470'

    Args:
        project: the project's name.
        zone: the zone of the group.
        instance_group: the group's name.
        port: the port of every task.
        task_type: the job of the group's instances.
        task_id: the index of this instance; it must differ between instances.
        rpc_layer: the protocol that `master` puts in front of addresses.
        credentials: credentials for the API; ``"default"`` uses those of the machine.
        service: the result of ``googleapiclient.discovery.build("compute", "v1")``, if
            you create it yourself; `credentials` are then not used.

    Raises:
        ImportError: `service` is not given, and ``google-api-python-client`` is not
            installed.
        ValueError: `port` is not a valid port.
    """

    def __init__(
        self,
        project: str,
        zone: str,
        instance_group: str,
        port: int,
        task_type: str = "worker",
        task_id: int = 0,
        rpc_layer: str | None = "grpc",
        credentials: object = "default",
        service: Any = None,
    ) -> None:
        self._project = project
        self._zone = zone
        self._group = instance_group
        self._port = untrusted.port("port", port)
        self._task_type, self._task_id, self._rpc_layer = task_type, task_id, rpc_layer
        self._service = service or make_service(
            "GCEClusterResolver", "compute", "v1", credentials
        )

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the instances of the group that are running now, sorted by address.

        Raises:
            ValueError: the API answers with a malformed address or too many instances.
        """
        groups = self._service.instanceGroups()
        request = groups.listInstances(
            project=self._project,
            zone=self._zone,
            instanceGroup=self._group,
            body={"instanceState": "RUNNING"},
            orderBy="name",
        )
        addresses: list[str] = []
        while request is not None:
            response = request.execute()
            for instance in response.get("items", ()):
                addresses.append(self._address(instance["instance"].split("/")[-1]))
            if len(addresses) > untrusted.MAX_TASKS:
                raise ValueError(
                    f"The group {self._group!r} has more than {untrusted.MAX_TASKS:,} "
                    "instances, which is the most that a cluster may have."
                )
            request = groups.listInstances_next(
                previous_request=request, previous_response=response
            )
        # Sorted as TensorFlow does: all instances must number each other alike.
        return cluster_tasks.ClusterSpec({str(self._task_type): sorted(addresses)})

    def _address(self, instance: str) -> str:
        details = (
            self._service.instances()
            .get(project=self._project, zone=self._zone, instance=instance)
            .execute()
        )
        return untrusted.address(
            f"The address of instance {untrusted.excerpt(instance)}",
            f"{details['networkInterfaces'][0]['networkIP']}:{self._port}",
        )

    @property
    def task_type(self) -> str | None:
        """The job of the group's instances; it cannot be changed."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        raise RuntimeError(
            "You cannot reset the task_type of the GCEClusterResolver after it has "
            f"been created; pass task_type={task_type!r} to its constructor."
        )

    def _sources(self) -> dict[str, str]:
        return {
            "": base.CONSTRUCTOR,
            "cluster": f"the API of Compute Engine, group {self._group}",
        }
