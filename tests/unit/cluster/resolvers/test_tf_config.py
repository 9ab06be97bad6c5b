"""TF_CONFIG is not taken on trust: each rule has its own message, and nothing else."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

import unisono as uni
from unisono._src.cluster import untrusted
from unisono._src.cluster.resolvers import tf_config

pytestmark = pytest.mark.feature("U02")

TASK = {"type": "worker", "index": 0}

BAD = {
    "no JSON": ("{'cluster'", "TF_CONFIG is not JSON .* column 2"),
    "no object": ("[1]", "must be a JSON object with the keys 'cluster' and 'task'"),
    "a key twice": ('{"task": {}, "task": {}}', "has the key 'task' twice"),
    "nested deeply": ("[" * 100_000, "TF_CONFIG is nested too deeply"),
    "a long number": ('{"x": ' + "1" * 5000 + "}", "a number of 5,000 digits"),
    "too long": ('"' + "x" * (1 << 20) + '"', "1,048,578 characters long"),
    "cluster": ({"cluster": ["a:1"]}, "'cluster' must map job names to lists"),
    "job's name": ({"cluster": {"wor ker": ["a:1"]}}, "a job's name is 'wor ker'"),
    "tasks": ({"cluster": {"worker": "a:1"}}, "job 'worker' must be a list of addr"),
    "no tasks": ({"cluster": {"worker": []}}, "job 'worker' has no tasks"),
    "an index": ({"cluster": {"worker": {"-1": "a:1"}}}, "an index must be a whole"),
    "large index": (
        {"cluster": {"ps": {"65536": "a:1"}}},
        "an index is 65536; it must",
    ),
    "index twice": ({"cluster": {"ps": {"1": "a:1", "01": "b:1"}}}, "an index twice"),
    "address type": ({"cluster": {"worker": [1]}}, "must be a string 'host:port'"),
    "protocol": ({"cluster": {"worker": ["grpc://a:1"]}}, "without a protocol"),
    "no port": ({"cluster": {"worker": ["host"]}}, "'host', without a port"),
    "no port, IPv6": ({"cluster": {"worker": ["[::1]"]}}, "without a port"),
    "port 0": ({"cluster": {"worker": ["a:0"]}}, "is 0; it must be between 1 and"),
    "large port": ({"cluster": {"worker": ["a:65536"]}}, "is 65536; it must be betwe"),
    "port's form": ({"cluster": {"worker": ["a:+1"]}}, "must be a whole number"),
    "host": ({"cluster": {"worker": ["a b:1"]}}, "names the host 'a b'"),
    "no host": ({"cluster": {"worker": [":1"]}}, "names the host ''"),
    "bare IPv6": ({"cluster": {"worker": ["::1:80"]}}, "IPv6 address in brackets"),
    "escapes": ({"cluster": {"worker": ["\x1b[2J:1"]}}, r"the host '\\x1b\[2J'"),
    "address twice": (
        {"cluster": {"worker": ["a:1"], "ps": ["b:1", "a:1"]}},
        "gives 'a:1' to both worker 0 and ps 1",
    ),
    "task": ({"task": "worker"}, "'task' must be an object with 'type' and 'index'"),
    "task's type": ({"task": {"type": 1.5}}, "the task's type is 1.5"),
    "true type": ({"task": {"type": True}}, "the task's type is True"),
    "task's index": ({"task": {"index": -1}}, "the task's index is -1; it must be"),
    "a fraction": ({"task": {"index": 1.5}}, "the task's index must be a whole number"),
    "true": ({"task": {"index": True}}, "the task's index must be a whole number"),
    "job outside": (
        {"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}},
        "of type 'ps', which the cluster does not have; it has .'worker'.",
    ),
    "task outside": (
        {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}},
        r"the task is worker 1, but 'worker' has only the indices \[0\]",
    ),
    "rpc_layer": ({"rpc_layer": "g/rpc"}, "rpc_layer is 'g/rpc'; expected a protocol"),
    "master": ({"session_master": 1}, "session_master must be a string"),
}


def set_config(monkeypatch, value):
    text = value if isinstance(value, str) else json.dumps(value)
    monkeypatch.setenv("TF_CONFIG", text)


@pytest.mark.parametrize("rule", BAD)
def test_every_rule_has_its_own_message(monkeypatch, rule):
    value, message = BAD[rule]
    set_config(monkeypatch, value)
    resolver = uni.distribute.cluster_resolver.TFConfigClusterResolver()
    for ask in (
        resolver.cluster_spec,
        resolver.master,
        lambda: resolver.task_type,
        lambda: resolver.task_id,
        lambda: resolver.rpc_layer,
        resolver.explain,
    ):
        with pytest.raises(ValueError, match=message) as caught:
            ask()
        assert "TF_CONFIG" in str(caught.value)
        assert len(str(caught.value)) < 400


def test_no_two_rules_share_a_message():
    seen = {}
    for rule, (value, _) in BAD.items():
        text = value if isinstance(value, str) else json.dumps(value)
        with pytest.raises(ValueError) as caught:
            tf_config.parse(text)
        assert str(caught.value) not in seen, (rule, seen[str(caught.value)])
        seen[str(caught.value)] = rule


def test_too_many_tasks_are_refused():
    many = [f"h{i}:1" for i in range(untrusted.MAX_TASKS + 1)]
    with pytest.raises(ValueError, match="65,537 tasks; at most 65,536 are read"):
        tf_config._cluster({"worker": many})


def test_keys_that_others_put_there_are_ignored():
    config = tf_config.parse('{"environment": "cloud", "job": {"region": "x"}}')
    assert config == tf_config.TFConfig(uni.train.ClusterSpec({}))


def test_digits_are_an_index_and_ipv6_is_a_host():
    config = tf_config.parse(
        '{"cluster": {"worker": ["[::1]:80"]}, "task": {"type": "worker", "index":'
        ' "0"}}'
    )
    assert (config.task_type, config.task_id) == ("worker", 0)


def test_the_variable_is_read_anew_each_time(monkeypatch):
    resolver = uni.distribute.cluster_resolver.TFConfigClusterResolver()
    set_config(monkeypatch, {"cluster": {"worker": ["a:1"]}, "task": TASK})
    assert resolver.cluster_spec().num_tasks("worker") == 1
    set_config(monkeypatch, {"cluster": {"worker": ["a:1", "b:2"]}, "task": TASK})
    assert resolver.cluster_spec().num_tasks("worker") == 2


def test_a_cluster_that_was_handed_out_cannot_change_the_next():
    first = tf_config.parse('{"cluster": {"worker": ["a:1"]}}').cluster
    first.as_dict()["worker"].append("b:2")
    assert tf_config.parse('{"cluster": {"worker": ["a:1"]}}').cluster == first


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["cluster", "task", "worker", "ps", "type", "index", "0"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@hypothesis.given(JSON)
def test_any_json_is_read_or_refused_in_words(value):
    try:
        config = tf_config.parse(json.dumps(value))
    except ValueError as error:
        assert "TF_CONFIG" in str(error) and str(error).isprintable()
    else:
        assert isinstance(config.cluster, uni.train.ClusterSpec)


@hypothesis.given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_words(text):
    try:
        tf_config.parse(text)
    except ValueError as error:
        assert "TF_CONFIG" in str(error) and str(error).isprintable()


HOSTS = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
ADDRESSES = st.tuples(HOSTS, st.integers(1, 65_535)).map(lambda a: f"{a[0]}:{a[1]}")


@hypothesis.given(st.lists(ADDRESSES, min_size=1, max_size=8, unique=True), st.data())
def test_a_good_cluster_comes_back_as_it_was(addresses, data):
    cut = data.draw(st.integers(1, len(addresses)))
    cluster = {"worker": addresses[:cut]}
    if addresses[cut:]:
        cluster["ps"] = addresses[cut:]
    index = data.draw(st.integers(0, cut - 1))
    text = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    config = tf_config.parse(text)
    assert config.cluster.as_dict() == cluster
    assert (config.task_type, config.task_id) == ("worker", index)


def test_explain_says_what_comes_from_where(monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    set_config(monkeypatch, {"cluster": {"worker": ["a:1", "b:2"]}, "task": TASK})
    resolver = uni.distribute.cluster_resolver.TFConfigClusterResolver(task_id=1)
    explanation = resolver.explain()
    printed = capsys.readouterr().out
    told = {f.what: (f.value, f.source) for f in explanation.findings}
    assert told == {
        "task_type": ("worker", "TF_CONFIG"),
        "task_id": ("1", "set by the program"),
        "accelerators": ("none", "this machine"),
        "worker 0": ("a:1", "TF_CONFIG"),
        "worker 1": ("b:2", "TF_CONFIG"),
    }
    for text in (printed, str(explanation)):
        assert "TFConfigClusterResolver" in text and "b:2" in text


def test_explain_without_the_variable_says_so(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    findings = uni.distribute.cluster_resolver.TFConfigClusterResolver().explain()
    last = findings.findings[-1]
    assert (last.what, last.source) == ("cluster", "TF_CONFIG is not set")


def test_explain_lists_the_first_tasks_of_a_large_job(monkeypatch):
    many = [f"h{i}:1" for i in range(100)]
    set_config(monkeypatch, {"cluster": {"worker": many}, "task": TASK})
    text = str(uni.distribute.cluster_resolver.TFConfigClusterResolver().explain())
    assert "h7:1" in text and "h8:1" not in text and "and 92 more" in text


def test_a_job_may_have_a_number_for_its_name(monkeypatch):
    cluster = {"123456": ["a:1", "b:1"], "worker": ["c:1"]}
    set_config(
        monkeypatch, {"cluster": cluster, "task": {"type": 123456, "index": "1"}}
    )
    resolver = tf_config.TFConfigClusterResolver()
    assert (resolver.task_type, resolver.task_id) == ("123456", 1)
    assert resolver.cluster_spec().as_dict() == cluster
    assert resolver.master() == "b:1"
