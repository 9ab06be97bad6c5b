"""Calls go in the direction of imports, and a step makes few of them.

Import-linter sees only imports, not a callback that is passed to a lower layer. Here
real programs run under a profiler (`walks`).
"""

import json
import subprocess
import sys

import pytest

from tests.architecture import sources, walks

# These modules apply any given function to every leaf of a structure or node of a plan,
# so they call functions of every room.
APPLIERS = {"foundation/nest.py", "input/plan/elements.py"}
APPLYING = "rewrite -> "
# Functions that call what they are given, from whatever room, and what that is.
GIVEN = {
    "execution/equations.py: interpret": "What follows the equations of a program.",
    "execution/equations.py: interpret.<locals>.find": "What follows its constants.",
    "execution/gradients.py: _follow.<locals>.compute": "The differentiated function.",
    "execution/merging.py: _merge_alone": "The function of a `merge_call`.",
    "execution/unchanged_arguments.py: call": "The function that is being traced.",
    "foundation/library_hooks.py: adopt": "What a `Integration` declares.",
    "foundation/library_hooks.py: introduce": "What a `Integration` declares.",
    "foundation/tensorflow_names/host_bodies.py: choose.<locals>.entry": "One of the "
    "bodies of an everyday name.",
    "integrations/keras/optimizers.py: _update_on_servers": "The plan of an update, "
    "which `RemoteState` declares.",
    "integrations/keras/training.py: _make_loop_method.<locals>.method": "The `fit` of "
    "servers, which `RemoteState` declares.",
    "state/creation.py: _bind_creator.<locals>.<lambda>": "A creator of variables.",
    "state/function_frame.py: FunctionFrame.change": "What computes a value if it is "
    "read.",
    "strategies/local.py: SingleExtended._call_for_each_replica": "The function of a "
    "`run`.",
}
# Lower rooms take variables for arrays, and ask them the same.
ASKED = ("dtype", "trainable", "_unisono_variable")
# Calls that go up on purpose, and why.
UPWARD = {
    "execution/function.py: Function.for_strategy -> Strategy.extended": (
        "A function is compiled anew for each strategy that runs it."
    ),
    "execution/function.py: Function.for_strategy.<locals>.run -> Strategy._run": (
        "A function is compiled anew for each strategy that runs it."
    ),
}


def is_own(caller, call):
    """Whether a module makes a call of its own accord.

    Otherwise it calls what it was given, or asks a variable as if it were an array.
    """
    source, _, target = call.partition(" -> ")
    return not (
        caller in APPLIERS
        or call.startswith(APPLYING)
        or f"{caller}: {source}" in GIVEN
        or target.rpartition(".")[2] in ASKED
    )


def upward(edges):
    """Returns the calls from a lower room to a higher one."""
    known = sources.heights()
    return {
        f"{caller}: {call}"
        for (caller, callee), calls in edges.items()
        for call in calls
        if is_own(caller, call)
        and known.get(sources.room_of(callee, caller), 0)
        > known[sources.room_of(caller, callee)]
    }


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Returns the calls of training, reading and saving on two replicas.

    Variables are those of unisono and of Keras, and some are on parameter servers.
    """
    strategy = walks.mirrored(2)
    with walks.watching() as found:
        walks.train(walks.mirrored(1))
        walks.train(strategy)
        walks.feed(strategy)
        folder = tmp_path_factory.mktemp("walk")
        walks.save(strategy, folder)
        walks.differentiate(strategy)
        walks.fit(strategy)
        walks.schedule(folder)
    return found


def test_a_lower_room_never_calls_a_higher_one(seen):
    found = upward(seen.edges) - UPWARD.keys()
    assert not found, (
        "expected calls to go down the rooms of pyproject.toml only, received "
        f"{sorted(found)}; pass data instead of a callback, or move the function."
    )


# Modules that call each other on purpose, and why.
MUTUAL = {
    ("execution/profile_names.py", "execution/programs.py"): (
        "JAX calls a program through a function that bears its name."
    ),
    ("execution/function.py", "strategies/base.py"): (
        "A function is compiled anew for each strategy that runs it."
    ),
    (
        "integrations/keras/strategy_distribution.py",
        "integrations/keras/variables.py",
    ): "Keras asks a distribution for the layout of a variable when it makes one.",
    ("servers/cluster_coordinator.py", "servers/parameter_server.py"): (
        "A strategy that ends also ends its coordinator."
    ),
    ("strategies/base.py", "strategies/call_context.py"): (
        "A strategy checks where it is called; a context asks for its placement."
    ),
}


def test_no_two_modules_call_each_other(seen):
    edges = {
        (caller, callee): {call for call in calls if is_own(caller, call)}
        for (caller, callee), calls in seen.edges.items()
    }
    pairs = {
        (a, b): sorted(edges[a, b] | edges[b, a])
        for a, b in edges
        if a < b and edges[a, b] and edges.get((b, a)) and (a, b) not in MUTUAL
    }
    assert not pairs, (
        f"expected calls between two modules to go one way, received {pairs}; move a "
        "function, or say in MUTUAL why not."
    )


# The cost of each repetition: calls of the library's functions, and modules entered.
# Lower these numbers if the cost falls; never raise them.
BUDGETS = {
    "compiled step": (6, 6),
    "run of a compiled function": (21, 9),
    "eager assign_add": (110, 12),
    "eager assign_add of a number": (110, 12),
    "eager all_reduce": (150, 15),
    "next batch of rows": (40, 10),
    "closure": (210, 25),
    "tape": (140, 16),
    "tape, keras loaded": (145, 17),
    "run with a tape": (375, 25),
    "run with a tape, keras loaded": (400, 29),
}


@pytest.fixture(scope="module")
def costs():
    """Returns the calls, the modules and the most frequent calls of each walk."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.architecture.walks"],
        cwd=sources.ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("walk", BUDGETS)
def test_what_is_done_at_every_step_makes_few_calls(costs, walk):
    calls, modules, most = costs[walk]
    assert calls <= BUDGETS[walk][0], most
    assert len(modules) <= BUDGETS[walk][1], modules


def test_an_assignment_adds_few_calls_to_an_eager_run(costs):
    alone, *_ = costs["eager run of nothing"]
    whole, _, most = costs["eager assign_add"]
    assert whole - alone <= 60, most


def test_a_closure_is_looked_up_once():
    strategy = walks.make_cluster()
    seen = walks.steady(walks.make_closure(strategy))
    strategy.shutdown()
    assert seen.calls["execution/traced_function.py", "aval_key"] == 1


def test_making_a_variable_makes_few_calls(costs):
    alone, *_ = costs["scope"]
    whole, _, most = costs["scope with a new variable"]
    assert whole - alone <= 40, most
