"""Resolvers that ask a service, against local fakes of it."""

import os
import sys
import types

import jax
import pytest

import unisono as uni
from tests.unit.cluster.resolvers import services
from unisono._src.cluster.resolvers import google, tpu

resolvers = uni.distribute.cluster_resolver

pytestmark = [
    pytest.mark.feature("U01"),
    # The clients' own, when they are imported or their sockets collected.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


# ------------------------------------------------------------------------ Kubernetes


def pod(name, address, phase="Running"):
    return {"metadata": {"name": name}, "status": {"phase": phase, "podIP": address}}


def kubernetes_service(pods):
    """Answers the list of pods by label, as the API server does."""

    def respond(path, query):
        if path != "/api/v1/pods":
            return 404, {"kind": "Status", "code": 404}
        found = pods.get(query.get("labelSelector"), [])
        return 200, {"kind": "PodList", "apiVersion": "v1", "items": found}

    return respond


@pytest.fixture
def core_api():
    client = pytest.importorskip("kubernetes.client")

    def connect(url):
        configuration = client.Configuration(host=url)
        return client.CoreV1Api(client.ApiClient(configuration))

    return connect


def as_objects(value):
    """A client's answer, without the client."""
    if isinstance(value, dict):
        named = {k.replace("podIP", "pod_ip"): as_objects(v) for k, v in value.items()}
        return types.SimpleNamespace(**named)
    return [as_objects(v) for v in value] if isinstance(value, list) else value


class Client:
    """Answers as kubernetes.client.CoreV1Api does."""

    def __init__(self, pods):
        self.pods = pods

    def list_pod_for_all_namespaces(self, label_selector):
        return types.SimpleNamespace(items=as_objects(self.pods[label_selector]))


PODS = {
    "job=a": [pod("a-1", "10.0.0.2"), pod("a-0", "10.0.0.1")],
    "job=b": [pod("b-0", "10.0.0.3")],
    "job=c": [pod("c-0", "10.0.0.4", "Pending")],
    "job=d": [pod("d-0", "10.0.0.1")],
}


def test_running_pods_become_tasks_by_name(core_api):
    with services.serve(kubernetes_service(PODS)) as (url, asked):
        r = resolvers.KubernetesClusterResolver(
            {"worker": ["job=a", "job=b"]}, 1234, override_client=core_api(url)
        )
        found = r.cluster_spec()
    assert found.as_dict() == {
        "worker": ["10.0.0.1:1234", "10.0.0.2:1234", "10.0.0.3:1234"]
    }
    assert [query["labelSelector"] for _, _, query, _ in asked] == ["job=a", "job=b"]


def test_a_program_in_a_pod_uses_the_account_of_the_pod(monkeypatch, tmp_path):
    config = pytest.importorskip("kubernetes.config.incluster_config")
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("secret")
    authority.write_text("none")
    monkeypatch.setattr(config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    r = resolvers.KubernetesClusterResolver()
    settings = r._client.api_client.configuration
    assert settings.host == "https://127.0.0.1:1"
    assert "secret" in str(settings.api_key)


def test_a_client_of_one_s_own_will_do():
    client = Client(PODS)
    r = resolvers.KubernetesClusterResolver({"ps": ["job=b"]}, override_client=client)
    assert r.cluster_spec().as_dict() == {"ps": ["10.0.0.3:8470"]}
    assert (r.task_type, r.task_id, r.rpc_layer, r.master()) == (None, None, "grpc", "")
    r.task_type, r.task_id = "ps", 0
    assert r.master() == "grpc://10.0.0.3:8470"
    assert r.master(rpc_layer="http") == "http://10.0.0.3:8470"
    assert "pods with job=b" in r.explain().findings[-1].source


def test_a_pod_that_does_not_run_is_named():
    r = resolvers.KubernetesClusterResolver(
        {"worker": ["job=c"]}, override_client=Client(PODS)
    )
    with pytest.raises(RuntimeError, match='Pod "c-0" is not running; phase: "Pendin'):
        r.cluster_spec()


def test_two_pods_at_one_address_are_refused():
    r = resolvers.KubernetesClusterResolver(
        {"worker": ["job=a"], "ps": ["job=d"]}, override_client=Client(PODS)
    )
    with pytest.raises(ValueError, match="both worker 0 and ps 0"):
        r.cluster_spec()


def test_without_the_kubernetes_client_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ImportError, match="pip install kubernetes"):
        resolvers.KubernetesClusterResolver()


def test_an_unknown_location_is_refused():
    with pytest.raises(ValueError, match="executable location provided is invalid"):
        resolvers.KubernetesClusterResolver(executable_location="here")


# -------------------------------------------------------------------- Compute Engine


def compute_service(pages, addresses):
    """Answers a group's instances, page by page, and each instance's address."""

    def respond(path, query):
        if path.endswith("/listInstances"):
            page = int(query.get("pageToken", 0))
            items = [{"instance": f"https://x/instances/{n}"} for n in pages[page]]
            answer: dict = {"items": items} if items else {}
            if page + 1 < len(pages):
                answer["nextPageToken"] = str(page + 1)
            return 200, answer
        name = path.rpartition("/")[2]
        return 200, {"networkInterfaces": [{"networkIP": addresses[name]}]}

    return respond


@pytest.fixture
def google_api():
    discovery = pytest.importorskip("googleapiclient.discovery")
    http = pytest.importorskip("httplib2")

    def connect(url, api, version):
        return discovery.build(
            api, version, http=http.Http(), client_options={"api_endpoint": url}
        )

    return connect


def test_the_instances_of_a_group_become_tasks(google_api):
    addresses = {"vm-a": "10.0.0.2", "vm-b": "10.0.0.1", "vm-c": "10.0.0.3"}
    respond = compute_service([["vm-a", "vm-b"], ["vm-c"]], addresses)
    with services.serve(respond) as (url, asked):
        service = google_api(url, "compute", "v1")
        r = resolvers.GCEClusterResolver("p", "z", "g", 8470, service=service)
        assert r.cluster_spec().as_dict() == {
            "worker": ["10.0.0.1:8470", "10.0.0.2:8470", "10.0.0.3:8470"]
        }
        assert r.master("worker", 2) == "grpc://10.0.0.3:8470"
        service.close()
    assert "/projects/p/zones/z/instanceGroups/g/listInstances" in asked[0][1]


class Request:
    def __init__(self, answer):
        self.answer = answer

    def execute(self):
        return self.answer


class Compute:
    """Answers as the client for Compute Engine does."""

    def __init__(self, addresses):
        self.addresses = addresses

    def instanceGroups(self):
        return self

    instances = instanceGroups

    def listInstances(self, **_):
        return Request({"items": [{"instance": f"x/{n}"} for n in self.addresses]})

    def listInstances_next(self, previous_request, previous_response):
        return None

    def get(self, project, zone, instance):
        return Request({"networkInterfaces": [{"networkIP": self.addresses[instance]}]})


def test_this_instance_s_task_is_what_the_program_says():
    service = Compute({"a": "10.0.0.1", "b": "10.0.0.2"})
    r = resolvers.GCEClusterResolver(
        "p", "z", "g", 80, task_type="ps", task_id=1, rpc_layer=None, service=service
    )
    assert (r.task_type, r.task_id, r.environment) == ("ps", 1, "")
    assert r.master() == "10.0.0.2:80"
    r.task_id = 0
    assert r.master() == "10.0.0.1:80"
    with pytest.raises(RuntimeError, match="cannot reset the task_type"):
        r.task_type = "worker"
    assert "group g" in r.explain().findings[-1].source


def test_an_address_that_is_none_is_refused():
    r = resolvers.GCEClusterResolver("p", "z", "g", 80, service=Compute({"a": "a b"}))
    with pytest.raises(ValueError, match="The address of instance 'a'"):
        r.cluster_spec()
    with pytest.raises(ValueError, match="port is 0"):
        resolvers.GCEClusterResolver("p", "z", "g", 0, service=Compute({}))


def test_without_google_s_client_the_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "googleapiclient", None)
    with pytest.raises(ImportError, match="pip install google-api-python-client"):
        resolvers.GCEClusterResolver("p", "z", "g", 80)
    with pytest.raises(ImportError, match="TPUClusterResolver needs Google's API"):
        resolvers.TPUClusterResolver("t", "z", "p")


# ------------------------------------------------------------------------------- TPU


@pytest.fixture(autouse=True)
def no_tpu_in_the_environment(monkeypatch):
    for name in (tpu.ENDPOINTS, tpu.NAME, tpu.HOSTS, tpu.OWN_INDEX, tpu.DISCOVERY_URL):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(google, "metadata", lambda path: None)
    yield
    assert tpu.NAME not in os.environ


NODE = {
    "state": "READY",
    "health": "HEALTHY",
    "networkEndpoints": [
        {"ipAddress": "10.0.0.1", "port": 8470},
        {"ipAddress": "10.0.0.2"},
    ],
}


def test_a_tpu_is_asked_for_its_workers(google_api):
    def respond(path, _):
        if path == "/v1/projects/p/locations/z/nodes/t":
            return 200, NODE
        return 404, {}

    with services.serve(respond) as (url, asked):
        service = google_api(url, "tpu", "v1")
        r = resolvers.TPUClusterResolver("t", "z", "p", service=service)
        assert r.cluster_spec().as_dict() == {
            "worker": ["10.0.0.1:8470", "10.0.0.2:8470"]
        }
        service.close()
    assert len(asked) == 1


def test_a_list_of_one_name_is_that_tpu():
    r = resolvers.TPUClusterResolver(["t"], "z", "p", service=Nodes(NODE))
    assert r.cluster_spec().as_dict() == {"worker": ["10.0.0.1:8470", "10.0.0.2:8470"]}
    with pytest.raises(ValueError, match="At least one TPU must be specified"):
        resolvers.TPUClusterResolver([], "z", "p", service=Nodes(NODE))
    with pytest.raises(NotImplementedError, match="multiple TPUs in a single session"):
        resolvers.TPUClusterResolver(["t", "u"], "z", "p", service=Nodes(NODE))


def test_a_tpu_that_cannot_be_looked_up_is_a_value_error():
    class Broken(Nodes):
        def get(self, name):
            raise KeyError(name)

    r = resolvers.TPUClusterResolver("nonexistent", "z", "p", service=Broken(NODE))
    with pytest.raises(ValueError, match="lookup TPU metadata from name 'nonexistent'"):
        r.cluster_spec()
    with pytest.raises(ValueError, match="nodes/nonexistent"):
        r.master()


class Nodes:
    """Answers as the client for Cloud TPU does."""

    def __init__(self, node):
        self.node = node

    def projects(self):
        return self

    locations = nodes = projects

    def get(self, name):
        assert name == "projects/p/locations/z/nodes/t"
        return Request(self.node)


def test_a_tpu_s_task_is_its_first_worker():
    r = resolvers.TPUClusterResolver("t", "z", "p", job_name="tpu", service=Nodes(NODE))
    assert (r.task_type, r.task_id, r.get_job_name()) == ("tpu", 0, "tpu")
    assert r.master() == r.get_master() == "grpc://10.0.0.1:8470"
    assert r.master("tpu", 1) == "grpc://10.0.0.2:8470"
    assert r.num_accelerators()["TPU"] == 0


def test_a_coordinator_can_be_added():
    r = resolvers.TPUClusterResolver(
        "t",
        "z",
        "p",
        coordinator_name="coordinator",
        coordinator_address="10.1.1.1:1",
        service=Nodes(NODE),
    )
    assert r.cluster_spec().job_tasks("coordinator") == ["10.1.1.1:1"]
    with pytest.raises(ValueError, match="'c' needs an address"):
        resolvers.TPUClusterResolver("local", coordinator_name="c")


@pytest.mark.parametrize(
    "node", [{"state": "CREATING"}, {"state": "READY", "health": "UNHEALTHY_TPU"}]
)
def test_a_tpu_that_is_not_ready_is_named(node):
    r = resolvers.TPUClusterResolver("t", "z", "p", service=Nodes(node))
    with pytest.raises(RuntimeError, match='TPU "t" is unusable: its state is "'):
        r.cluster_spec()


def test_a_local_tpu_has_no_cluster():
    r = resolvers.TPUClusterResolver("local")
    assert (r.cluster_spec().as_dict(), r.master()) == ({}, "")


def test_it_tells_what_the_tpu_consists_of():
    found = resolvers.TPUClusterResolver("").get_tpu_system_metadata()
    assert isinstance(found, uni.tpu.experimental.TPUSystemMetadata)
    cores = len(jax.devices())
    assert (found.num_cores, found.num_hosts) == (cores, 1)
    assert (found.num_of_cores_per_host, found.topology) == (cores, None)
    kind = uni.config.list_logical_devices()[0].device_type
    assert found.devices[1:2] == (f"/job:worker/replica:0/task:0/device:{kind}:1",)
    several = resolvers.TPUClusterResolver("grpc://10.0.0.1:1,10.0.0.2:1")
    with pytest.raises(RuntimeError, match="2 workers, which have not joined yet"):
        several.get_tpu_system_metadata()


def test_an_empty_name_is_this_machine_where_nothing_says_otherwise(monkeypatch):
    assert resolvers.TPUClusterResolver("").cluster_spec().as_dict() == {}
    monkeypatch.setenv(tpu.ENDPOINTS, "grpc://10.0.0.9:8470")
    named = resolvers.TPUClusterResolver("").cluster_spec()
    assert named.as_dict() == {"worker": ["10.0.0.9:8470"]}


def test_a_tpu_may_be_given_by_its_addresses(monkeypatch):
    r = resolvers.TPUClusterResolver("grpc://10.0.0.1:1,10.0.0.2")
    assert r.cluster_spec().job_tasks("worker") == ["10.0.0.1:1", "10.0.0.2:8470"]
    with pytest.raises(ValueError, match="the argument tpu names the host"):
        resolvers.TPUClusterResolver("grpc://a b:1")
    monkeypatch.setenv(tpu.ENDPOINTS, "grpc://10.0.0.9:8470")
    r = resolvers.TPUClusterResolver.connect()
    assert r.master() == "grpc://10.0.0.9:8470"
    assert r.explain().findings[0].source == tpu.ENDPOINTS


def test_a_worker_of_a_tpu_knows_its_peers(monkeypatch):
    monkeypatch.setenv(tpu.HOSTS, "t0,t1,t2")
    monkeypatch.setenv(tpu.OWN_INDEX, "2")
    r = resolvers.TPUClusterResolver()
    assert (r.task_id, r.master()) == (2, "grpc://t2:8470")
    monkeypatch.setenv(tpu.OWN_INDEX, "3")
    with pytest.raises(ValueError, match="TPU_WORKER_ID is 3; it must be between 0 an"):
        resolvers.TPUClusterResolver()


def test_without_a_tpu_anywhere_the_variables_are_named():
    with pytest.raises(RuntimeError, match="none of KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, "):
        resolvers.TPUClusterResolver()


def test_the_machine_tells_project_and_zone():
    def respond(path, _):
        told = {
            "/computeMetadata/v1/project/project-id": "p",
            "/computeMetadata/v1/instance/zone": "projects/123/zones/z",
        }
        return (200, told[path]) if path in told else (404, "")

    # `google.metadata` itself is replaced for this module; ask the original.
    ask = _metadata
    with services.serve(respond) as (url, asked):
        assert ask("project/project-id", url) == "p"
        assert ask("instance/zone", url) == "projects/123/zones/z"
        assert ask("instance/else", url) is None
    assert asked[0][3]["Metadata-Flavor"] == "Google"
    assert ask("project/project-id", url) is None  # Nobody is there any more.


_metadata = google.metadata


def test_a_tpu_s_full_name_is_made_of_what_the_machine_tells(monkeypatch):
    told = {"project/project-id": "p", "instance/zone": "projects/1/zones/z"}
    monkeypatch.setenv(tpu.NAME, "t")
    with pytest.raises(RuntimeError, match="The project and the zone of TPU 't'"):
        resolvers.TPUClusterResolver(service=Nodes(NODE))
    monkeypatch.setattr(google, "metadata", told.get)
    r = resolvers.TPUClusterResolver(service=Nodes(NODE))
    assert r.cluster_spec().num_tasks("worker") == 2
    monkeypatch.delenv(tpu.NAME)
