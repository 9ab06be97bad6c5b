"""Finds the cluster of pods that Kubernetes runs."""

from __future__ import annotations

import enum
from typing import Any

from unisono._src.cluster import cluster_tasks, untrusted
from unisono._src.cluster.resolvers import base


class KubernetesExecutableLocation(enum.Enum):
    """Says where the program runs, which decides how it finds the API server.

    >>> KubernetesExecutableLocation.OFF_CLUSTER.name
    'OFF_CLUSTER'

    Attributes:
        WITHIN_CLUSTER: in a pod of the cluster, with the pod's own credentials.
        OFF_CLUSTER: elsewhere, with the credentials of a kubeconfig file.
    """

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


class KubernetesClusterResolver(base.ClusterResolver):
    """Asks Kubernetes for the pods with given labels, which must be running.

    Kubernetes does not tell a pod which task it is: set `task_type` and `task_id`.

    >>> from types import SimpleNamespace as Fake
    >>> state = Fake(phase="Running", pod_ip="10.0.0.7")
    >>> pods = Fake(items=[Fake(metadata=Fake(name="pod-0"), status=state)])
    >>> client = Fake(list_pod_for_all_namespaces=lambda label_selector: pods)
    >>> KubernetesClusterResolver(override_client=client).cluster_spec()
    ClusterSpec({'worker': ['10.0.0.7:8470']})

    Args:
        job_to_label_mapping: label selectors by job name; by default
            ``{"worker": ["job-name=tensorflow"]}``.
        tf_server_port: the port of every task.
        rpc_layer: the protocol that `master` puts in front of addresses.
        override_client: an object with `list_pod_for_all_namespaces`, such as a
            ``kubernetes.client.CoreV1Api`` with its credentials set. By default the
            package ``kubernetes`` creates one, as `executable_location` says.
        executable_location: whether this program runs in a pod of the cluster.

    Raises:
        ImportError: `override_client` is not given, and ``kubernetes`` is not
            installed.
        ValueError: `executable_location` is not a `KubernetesExecutableLocation`, or
            `tf_server_port` is not a valid port.
    """

    def __init__(
        self,
        job_to_label_mapping: dict[str, list[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
        executable_location: KubernetesExecutableLocation = (
            KubernetesExecutableLocation.WITHIN_CLUSTER
        ),
    ) -> None:
        if not isinstance(executable_location, KubernetesExecutableLocation):
            raise ValueError(
                "The executable location provided is invalid: "
                f"{executable_location!r}; pass a KubernetesExecutableLocation."
            )
        self._labels = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._port = untrusted.port("tf_server_port", tf_server_port)
        self._rpc_layer = rpc_layer
        self._client = override_client or _make_client(executable_location)

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the current pods, sorted by name within each selector.

        Raises:
            RuntimeError: a pod that matches is not running.
            ValueError: two tasks have the same address, or there are too many pods.
        """
        cluster = {
            job: [address for label in labels for address in self._addresses(label)]
            for job, labels in self._labels.items()
        }
        untrusted.check_unique("Kubernetes", cluster)
        return cluster_tasks.ClusterSpec(cluster)

    def _addresses(self, label: str) -> list[str]:
        pods = self._client.list_pod_for_all_namespaces(label_selector=label).items
        if len(pods) > untrusted.MAX_TASKS:
            raise ValueError(
                f"Kubernetes lists {len(pods):,} pods for {label!r}; a cluster may "
                f"have at most {untrusted.MAX_TASKS:,}. Choose a narrower label."
            )
        addresses = []
        for pod in sorted(pods, key=lambda p: p.metadata.name):
            if pod.status.phase != "Running":
                raise RuntimeError(
                    f'Pod "{pod.metadata.name}" is not running; phase: '
                    f'"{pod.status.phase}". Ask again when it is.'
                )
            addresses.append(
                untrusted.address(
                    f"The address of pod {untrusted.excerpt(pod.metadata.name)}",
                    f"{pod.status.pod_ip}:{self._port}",
                )
            )
        return addresses

    def _sources(self) -> dict[str, str]:
        labels = ", ".join(label for some in self._labels.values() for label in some)
        return {
            "": base.PROGRAM,
            "rpc_layer": base.CONSTRUCTOR,
            "cluster": f"the API of Kubernetes, pods with {labels}",
        }


def _make_client(location: KubernetesExecutableLocation) -> Any:
    try:
        import kubernetes.client
        import kubernetes.config
    except ImportError:
        raise ImportError(
            "KubernetesClusterResolver needs the Kubernetes client: run "
            "`pip install kubernetes`, or pass override_client=."
        ) from None
    if location is KubernetesExecutableLocation.OFF_CLUSTER:
        kubernetes.config.load_kube_config()
    else:
        kubernetes.config.load_incluster_config()
    return kubernetes.client.CoreV1Api()
