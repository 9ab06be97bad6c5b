"""Finds the cluster of a Cloud TPU."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, final

from unisono._src.cluster import accelerators, cluster_tasks, untrusted
from unisono._src.cluster.resolvers import base, google
from unisono._src.foundation.public_names import publish

ENDPOINTS = "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"
NAME = "TPU_NAME"
HOSTS = "TPU_WORKER_HOSTNAMES"
OWN_INDEX = "TPU_WORKER_ID"
DISCOVERY_URL = "TPU_API_DISCOVERY_URL"
# The port at which a Cloud TPU's workers listen.
_PORT = 8470
_LOCAL = "local"
# The API may leave the health out.
_HEALTHY = (None, "HEALTHY", "HEALTHY_NO_TPU")


class TPUClusterResolver(base.ClusterResolver):
    """Finds the workers of a TPU.

    With JAX, a process runs on every worker of the TPU. The resolver takes the workers'
    addresses from `tpu` (``grpc://10.0.0.1:8470,…``), or asks the Cloud TPU API for
    them by the name of the TPU. If `tpu` is None or ``""``, it reads environment
    variables: those of Kubernetes Engine, TPU_WORKER_HOSTNAMES and TPU_WORKER_ID, or
    TPU_NAME.

    ``"local"`` means the TPU of this machine alone, without a cluster. ``""`` means the
    same if none of the variables is set. On a machine without a TPU, the devices of the
    machine are used instead.

    >>> resolver = TPUClusterResolver("grpc://10.0.0.1:8470,10.0.0.2:8470")
    >>> resolver.cluster_spec().job_tasks("worker")
    ['10.0.0.1:8470', '10.0.0.2:8470']
    >>> resolver.master("worker", 1), TPUClusterResolver("local").cluster_spec().jobs
    ('grpc://10.0.0.2:8470', [])

    Args:
        tpu: the name of the TPU, the addresses of its workers, ``"local"``, ``""``, or
            None. A list with one of these means the same.
        zone: the zone of the TPU; by default that of this machine.
        project: the project of the TPU; by default that of this machine.
        job_name: the job of the TPU's workers.
        coordinator_name: the job of a coordinator to add to the cluster.
        coordinator_address: the coordinator's address.
        credentials: credentials for the API; ``"default"`` uses those of the machine.
        service: the result of ``googleapiclient.discovery.build("tpu", "v1")``, if you
            create it yourself; `credentials` are then not used.
        discovery_url: where the API describes itself. If the environment variable
            TPU_API_DISCOVERY_URL is set, it is used instead.

    Raises:
        ImportError: you name a TPU and pass no `service`, and
            ``google-api-python-client`` is not installed.
        RuntimeError: the TPU, its project or its zone is not known.
        NotImplementedError: `tpu` is a list of several TPUs.
        ValueError: an address or a variable is malformed, `tpu` is an empty list, or
            `coordinator_name` is given without an address.
    """

    def __init__(
        self,
        tpu: str | Sequence[str] | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        coordinator_address: str | None = None,
        credentials: object = "default",
        service: Any = None,
        discovery_url: str | None = None,
    ) -> None:
        if coordinator_name and not coordinator_address:
            raise ValueError(
                f"The coordinator {coordinator_name!r} needs an address: pass "
                "coordinator_address='host:port'."
            )
        tpu = _only_name(tpu)
        self._task_type, self._task_id = job_name, 0
        self._coordinator_name = coordinator_name
        self._coordinator_address = coordinator_address
        self._addresses: list[str] | None = None
        # The argument, then the environment; an empty name may mean this machine.
        self._tpu = tpu or self._find() or _use_local_or_raise(tpu)
        if self._tpu == _LOCAL or self._addresses is not None:
            return
        if _is_endpoint(self._tpu):
            self._source = "the argument tpu" if tpu else self._source
            self._addresses = _read_endpoints(self._source, self._tpu)
            return
        self._source = f"the Cloud TPU API, node {self._tpu}"
        self._node = _full_name(self._tpu, zone, project)
        self._service = service or google.make_service(
            "TPUClusterResolver",
            "tpu",
            "v1",
            credentials,
            os.environ.get(DISCOVERY_URL) or discovery_url,
        )

    @classmethod
    def connect(
        cls,
        tpu: str | Sequence[str] | None = None,
        zone: str | None = None,
        project: str | None = None,
    ) -> TPUClusterResolver:
        """Returns a resolver for the TPU; JAX starts the hardware on its first use.

        >>> TPUClusterResolver.connect("local").master()
        ''
        """
        return cls(tpu, zone, project)

    _source = base.CONSTRUCTOR

    def _find(self) -> str:
        """Returns the TPU that the environment names; stores its workers if known."""
        if os.environ.get(ENDPOINTS):
            self._source = ENDPOINTS
            return os.environ[ENDPOINTS]
        if os.environ.get(HOSTS):
            text = untrusted.bounded_text(HOSTS, os.environ[HOSTS])
            self._source = f"{HOSTS} and {OWN_INDEX}"
            self._addresses = [
                f"{untrusted.host(HOSTS, h.strip())}:{_PORT}" for h in text.split(",")
            ]
            _check_workers(HOSTS, self._addresses)
            own = os.environ.get(OWN_INDEX, "0")
            top = len(self._addresses) - 1
            self._task_id = untrusted.whole_number(OWN_INDEX, own, 0, top)
            return HOSTS
        return os.environ.get(NAME, "")

    def cluster_spec(self) -> cluster_tasks.ClusterSpec:
        """Returns the current workers of the TPU; a local TPU has none.

        Raises:
            RuntimeError: the TPU is not ready, or not healthy.
            ValueError: the Cloud TPU API did not answer, or does not know the TPU.
        """
        if self._tpu == _LOCAL:
            return cluster_tasks.ClusterSpec({})
        addresses = self._addresses
        job = str(self._task_type)
        cluster = {job: self._ask_service() if addresses is None else addresses}
        if self._coordinator_name:
            cluster[self._coordinator_name] = [str(self._coordinator_address)]
        return cluster_tasks.ClusterSpec(cluster)

    def _ask_service(self) -> list[str]:
        try:
            nodes = self._service.projects().locations().nodes()
            node = nodes.get(name=self._node).execute()
        except Exception as error:
            # The service is Google's client, or the caller's: any error may come.
            raise ValueError(
                f"Could not lookup TPU metadata from name '{self._tpu}'. Please "
                "doublecheck the tpu argument in the TPUClusterResolver constructor. "
                f"Exception: {error}"
            ) from error
        state, health = node.get("state"), node.get("health")
        if state != "READY" or health not in _HEALTHY:
            raise RuntimeError(
                f'TPU "{self._tpu}" is unusable: its state is "{state}" and its health '
                f'"{health}"; expected READY and HEALTHY.'
            )
        endpoints = node.get("networkEndpoints") or [node]
        return [
            untrusted.address(
                f'A worker of TPU "{self._tpu}"',
                f"{e.get('ipAddress')}:{e.get('port', _PORT)}",
            )
            for e in endpoints
        ]

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the ``grpc://`` address of a worker; empty for a local TPU."""
        if self._tpu == _LOCAL:
            return ""
        return super().master(task_type, task_id, rpc_layer or "grpc")

    def get_master(self) -> str:
        """Returns the address of this worker, as `master` does."""
        return self.master()

    def get_job_name(self) -> str | None:
        """Returns the job of the TPU's workers."""
        return self.task_type

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """Returns the number of devices and workers of the TPU, and the devices' names.

        Call it after `initialize_tpu_system`. On a machine without a TPU, it describes
        the devices that are used instead.

        Raises:
            RuntimeError: the TPU has several workers, and they have not joined yet.
            ValueError: the workers have different numbers of devices.

        >>> from unisono.distribute import cluster_resolver
        >>> resolver = cluster_resolver.TPUClusterResolver("local")
        >>> found = resolver.get_tpu_system_metadata()  # On 8 CPU devices.
        >>> found.num_cores, found.num_hosts, found.devices[0]
        (8, 1, '/job:worker/replica:0/task:0/device:CPU:0')
        """
        query = MetadataQuery.run
        if query is None:
            raise RuntimeError(
                "Import unisono.distribute.cluster_resolver first: it lets resolvers "
                "find JAX's devices."
            )
        job = str(self._task_type)
        workers = self.cluster_spec().as_dict().get(job, [])
        return query(len(workers), job)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns how many TPU chips this machine has; empty if it has none."""
        del task_type, task_id, config_proto
        found = {k: n for k, n in accelerators.count().items() if k == "TPU"}
        return collections.defaultdict(int, found)

    def __enter__(self) -> TPUClusterResolver:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _sources(self) -> dict[str, str]:
        return {"": self._source}


def _only_name(tpu: str | Sequence[str] | None) -> str | None:
    """Returns the only name of a list, and anything else as it is."""
    if tpu is None or isinstance(tpu, str):
        return tpu
    if len(tpu) == 1:
        return tpu[0]
    if not tpu:
        raise ValueError(
            "At least one TPU must be specified; received an empty list. Pass "
            "tpu='name', or None for the TPU that the environment names."
        )
    raise NotImplementedError(
        "Using multiple TPUs in a single session is not yet implemented; received "
        f"{list(tpu)!r}."
    )


def _use_local_or_raise(tpu: str | None) -> str:
    """Returns ``"local"`` for an empty name; raises for None: no TPU is known."""
    if tpu is not None:
        return _LOCAL
    raise RuntimeError(
        f"Nothing says which TPU to use: none of {ENDPOINTS}, {HOSTS} and {NAME} "
        "is set. Pass tpu='name', its address, or tpu='local' for this machine's."
    )


def _is_endpoint(tpu: str) -> bool:
    return tpu.startswith("grpc://") or ":" in tpu


def _read_endpoints(name: str, text: str) -> list[str]:
    found = []
    for part in untrusted.bounded_text(name, text).split(","):
        bare = part.strip().removeprefix("grpc://")
        whole = bare if ":" in bare else f"{bare}:{_PORT}"
        found.append(untrusted.address(name, whole))
    _check_workers(name, found)
    return found


def _check_workers(name: str, addresses: list[str]) -> None:
    if len(addresses) > untrusted.MAX_TASKS:
        raise ValueError(
            f"{name} names {len(addresses):,} workers; a cluster may have at most "
            f"{untrusted.MAX_TASKS:,}."
        )
    untrusted.check_unique(name, {"worker": addresses})


def _full_name(tpu: str, zone: str | None, project: str | None) -> str:
    if tpu.startswith("projects/"):
        return tpu
    project = project or google.metadata("project/project-id")
    if not zone:
        place = google.metadata("instance/zone")
        zone = place.rpartition("/")[2] if place else None
    if not project or not zone:
        raise RuntimeError(
            f"The project and the zone of TPU {tpu!r} are not known here: pass "
            "project= and zone=, or run on a machine of Google's cloud."
        )
    return f"projects/{project}/locations/{zone}/nodes/{tpu}"


@final
class TPUSystemMetadata(NamedTuple):
    """The devices of a TPU, and how they are distributed over its workers.

    Attributes:
        num_cores: the number of devices of all workers.
        num_hosts: the number of workers.
        num_of_cores_per_host: the number of devices of each worker.
        topology: None, as in TensorFlow; `initialize_tpu_system` returns it.
        devices: the names of the devices, in order.
    """

    num_cores: int
    num_hosts: int
    num_of_cores_per_host: int
    topology: None
    devices: tuple[str, ...]


@final
class MetadataQuery:
    """The function that reads the metadata from JAX's devices.

    The module that knows how workers join sets it: this room starts no devices.
    """

    # Gets the number of workers, and the name of their job.
    run: ClassVar[Callable[[int, str], TPUSystemMetadata] | None] = None


publish("unisono.distribute.cluster_resolver", TPUClusterResolver)
publish("unisono.tpu.experimental", TPUSystemMetadata)
