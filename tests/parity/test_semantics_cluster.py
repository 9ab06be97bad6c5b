"""Cluster specifications and resolvers answer as TensorFlow 2.21 was seen to."""

import json

import pytest

import unisono as uni

resolvers = uni.distribute.cluster_resolver
ClusterSpec = uni.train.ClusterSpec

TWO = {"worker": ["a:1", "b:2"]}


@pytest.fixture
def tf_config(monkeypatch):
    """Returns a function that sets TF_CONFIG for the test."""
    monkeypatch.delenv("TF_CONFIG", raising=False)

    def set_config(**fields):
        monkeypatch.setenv("TF_CONFIG", json.dumps(fields))

    return set_config


@pytest.fixture
def without_accelerators(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


@pytest.mark.feature("U01", "U02")
@pytest.mark.usefixtures("without_accelerators")
def test_tf_config_says_which_cluster_and_which_task(tf_config):
    cluster = {
        "worker": ["localhost:12345", "localhost:23456"],
        "ps": ["localhost:34567"],
    }
    tf_config(cluster=cluster, task={"type": "worker", "index": 1})
    r = resolvers.TFConfigClusterResolver()
    assert (r.task_type, r.task_id) == ("worker", 1)
    assert r.cluster_spec().as_dict() == cluster
    assert r.master() == "localhost:23456"
    assert (r.rpc_layer, r.environment) == (None, None)
    assert r.num_accelerators() == {}
    assert r.num_accelerators()["GPU"] == 0


@pytest.mark.feature("U02")
def test_without_tf_config_there_is_no_task_and_no_cluster(tf_config):
    r = resolvers.TFConfigClusterResolver()
    assert (r.task_type, r.task_id, r.rpc_layer) == (None, None, None)
    assert r.cluster_spec().as_dict() == {}
    assert r.master() == ""


@pytest.mark.feature("U02")
def test_arguments_win_over_tf_config(tf_config):
    tf_config(cluster=TWO, task={"type": "worker", "index": 0}, rpc_layer="grpc")
    r = resolvers.TFConfigClusterResolver(task_type="chief", task_id=5)
    assert (r.task_type, r.task_id, r.rpc_layer) == ("chief", 5, "grpc")
    assert r.master("worker", 1) == "grpc://b:2"
    with pytest.raises(ValueError, match="No such job in cluster: 'chief'"):
        r.master()


@pytest.mark.feature("U02")
def test_properties_set_later_win_over_tf_config(tf_config):
    tf_config(cluster=TWO, task={"type": "worker", "index": 0})
    r = resolvers.TFConfigClusterResolver()
    r.task_id, r.rpc_layer = 1, "grpc"
    assert (r.task_type, r.task_id, r.master()) == ("worker", 1, "grpc://b:2")
    r.task_type = "ps"
    assert r.task_type == "ps"


@pytest.mark.feature("U02")
def test_a_cluster_of_one_task_has_no_master(tf_config):
    tf_config(cluster={"worker": ["a:1"]}, task={"type": "worker", "index": 0})
    assert resolvers.TFConfigClusterResolver().master() == ""


@pytest.mark.feature("U02")
def test_a_session_master_in_tf_config_is_the_master(tf_config):
    tf_config(cluster=TWO, session_master="somewhere:1")
    assert resolvers.TFConfigClusterResolver().master("worker", 1) == "somewhere:1"


@pytest.mark.feature("U02")
def test_an_evaluator_stands_beside_the_cluster(tf_config):
    tf_config(cluster=TWO, task={"type": "evaluator", "index": 0})
    r = resolvers.TFConfigClusterResolver()
    assert (r.task_type, r.task_id) == ("evaluator", 0)


@pytest.mark.feature("U02", "A04")
def test_mirrored_strategy_ignores_tf_config(tf_config):
    tf_config(cluster=TWO, task={"type": "worker", "index": 0})
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    assert strategy.cluster_resolver is None


@pytest.mark.feature("U01")
def test_a_simple_resolver_answers_what_it_was_given():
    r = resolvers.SimpleClusterResolver(
        ClusterSpec(TWO),
        master="m",
        task_type="worker",
        task_id=1,
        environment="e",
        num_accelerators={"GPU": 8},
        rpc_layer="grpc",
    )
    assert (r.task_type, r.task_id, r.environment) == ("worker", 1, "e")
    assert (r.master(), r.master("worker", 0)) == ("grpc://m", "grpc://a:1")
    assert r.master("worker", 0, rpc_layer="http") == "http://a:1"
    assert r.cluster_spec().as_dict() == TWO
    assert r.num_accelerators() == {"GPU": 8}


@pytest.mark.feature("U01")
def test_a_simple_resolver_checks_its_types():
    with pytest.raises(TypeError, match=r"cluster_spec must be a `tf\.train\.Cluster"):
        resolvers.SimpleClusterResolver({"worker": ["a:1"]})
    with pytest.raises(TypeError, match="master must be a string"):
        resolvers.SimpleClusterResolver(ClusterSpec({}), master=3)


@pytest.fixture
def pair():
    a = resolvers.SimpleClusterResolver(
        ClusterSpec({"worker": ["a:1"]}), task_type="worker", task_id=0, master="m"
    )
    b = resolvers.SimpleClusterResolver(
        ClusterSpec({"ps": ["c:1"], "worker": ["d:1"]}), rpc_layer="http"
    )
    return a, b


@pytest.mark.feature("U01")
def test_a_union_merges_clusters_and_takes_the_task_of_the_first(pair):
    u = resolvers.UnionResolver(*pair)
    assert u.cluster_spec().as_dict() == {"worker": ["a:1", "d:1"], "ps": ["c:1"]}
    assert (u.task_type, u.task_id, u.rpc_layer) == ("worker", 0, None)
    assert (u.master(), u.master("ps", 0)) == ("m", "c:1")
    assert u.master("worker", 1, rpc_layer="grpc") == "grpc://d:1"


@pytest.mark.feature("U01")
def test_a_union_s_own_task_wins(pair):
    u = resolvers.UnionResolver(*pair, task_type="ps", task_id=0, rpc_layer="grpc")
    assert (u.task_type, u.task_id, u.rpc_layer) == ("ps", 0, "grpc")
    assert u.master("ps", 0) == "grpc://c:1"


@pytest.mark.feature("U01")
def test_a_union_merges_mappings_unless_an_index_occurs_twice():
    def resolver(tasks):
        return resolvers.SimpleClusterResolver(ClusterSpec({"worker": tasks}))

    u = resolvers.UnionResolver(resolver(["a:1"]), resolver({2: "b:2"}))
    assert u.cluster_spec().as_dict() == {"worker": {0: "a:1", 2: "b:2"}}
    u = resolvers.UnionResolver(resolver({1: "a:1"}), resolver({1: "b:2"}))
    with pytest.raises(KeyError, match="Duplicate keys detected"):
        u.cluster_spec()


@pytest.mark.feature("U01")
def test_a_union_checks_its_arguments(pair):
    with pytest.raises(ValueError, match="At least one ClusterResolver"):
        resolvers.UnionResolver()
    with pytest.raises(TypeError, match="All arguments must be a sub-class"):
        resolvers.UnionResolver(pair[0], "b")
    with pytest.raises(ValueError, match="Unexpected kwargs provided"):
        resolvers.UnionResolver(pair[0], task_index=1)


@pytest.mark.feature("U01")
def test_the_module_has_every_name_of_tensorflow_s():
    names = {
        "ClusterResolver",
        "GCEClusterResolver",
        "KubernetesClusterResolver",
        "KubernetesExecutableLocation",
        "SimpleClusterResolver",
        "SlurmClusterResolver",
        "TFConfigClusterResolver",
        "TPUClusterResolver",
        "UnionResolver",
    }
    assert names <= set(dir(resolvers))


@pytest.mark.feature("U01")
def test_a_cluster_is_given_as_lists_or_as_mappings():
    spec = ClusterSpec({"worker": ["a:1", "b:2"], "ps": {3: "c:4", 1: "d:5"}})
    assert spec.jobs == ["worker", "ps"]
    assert (spec.num_tasks("worker"), spec.num_tasks("ps")) == (2, 2)
    assert (spec.task_indices("worker"), spec.task_indices("ps")) == ([0, 1], [1, 3])
    assert spec.task_address("ps", 3) == "c:4"
    assert spec.job_tasks("worker") == ["a:1", "b:2"]
    assert spec.job_tasks("ps") == [None, "d:5", None, "c:4"]
    assert spec.as_dict() == {"worker": ["a:1", "b:2"], "ps": {3: "c:4", 1: "d:5"}}


@pytest.mark.feature("U01")
def test_a_mapping_with_every_index_is_a_list():
    spec = ClusterSpec({"worker": {1: "b:2", 0: "a:1"}})
    assert spec.as_dict() == {"worker": ["a:1", "b:2"]}
    assert ClusterSpec({"worker": {"1": "b:2"}}).task_indices("worker") == [1]


@pytest.mark.feature("U01")
def test_clusters_are_equal_when_their_tasks_are():
    spec = ClusterSpec(TWO)
    assert spec == ClusterSpec(spec) == ClusterSpec({"worker": {0: "a:1", 1: "b:2"}})
    assert spec != ClusterSpec({"worker": ["a:1"]})
    assert spec != TWO
    assert bool(spec) and not ClusterSpec({})


@pytest.mark.feature("U01")
def test_a_cluster_is_a_copy_and_prints_its_jobs_in_order():
    given = {"worker": ["a:1"], "ps": ["b:2"]}
    spec = ClusterSpec(given)
    given["worker"].append("c:3")
    assert str(spec) == "ClusterSpec({'ps': ['b:2'], 'worker': ['a:1']})"


@pytest.mark.feature("U01")
def test_a_task_that_is_not_there_is_named():
    spec = ClusterSpec(TWO)
    for ask in (spec.num_tasks, spec.task_indices, spec.job_tasks):
        with pytest.raises(ValueError, match="No such job in cluster: 'ps'"):
            ask("ps")
    with pytest.raises(ValueError, match="No such job in cluster: 'ps'"):
        spec.task_address("ps", 0)
    with pytest.raises(ValueError, match="No task with index 2 in job 'worker'"):
        spec.task_address("worker", 2)


@pytest.mark.feature("U01")
@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (["a:1"], "`cluster` must be a dictionary mapping"),
        (None, "`cluster` must be a dictionary mapping"),
        ({"worker": "a:1"}, "The tasks for job 'worker' must be a list or a dict"),
        ({"worker": [1]}, "The address of task 0 of job 'worker' must be a string"),
        ({"worker": {"x": "a:1"}}, "has the index 'x'"),
        ({"worker": {-1: "a:1"}}, "has the index -1"),
        ({1: ["a:1"]}, "A job name must be a string, received 1"),
    ],
)
def test_what_is_no_cluster_is_refused(cluster, message):
    with pytest.raises(TypeError, match=message):
        ClusterSpec(cluster)


@pytest.mark.feature("U01")
def test_a_resolver_of_one_s_own_needs_two_methods():
    class Own(resolvers.ClusterResolver):
        def cluster_spec(self):
            return ClusterSpec(TWO)

        def master(self, task_type=None, task_id=None, rpc_layer=None):
            return "a:1"

    own = Own()
    assert (own.task_type, own.task_id, own.rpc_layer, own.environment) == (
        None,
        None,
        None,
        "",
    )
    own.task_type, own.task_id = "worker", 1
    assert resolvers.UnionResolver(own).task_id == 1
    with pytest.raises(TypeError, match="abstract"):
        resolvers.ClusterResolver()  # type: ignore[abstract]
