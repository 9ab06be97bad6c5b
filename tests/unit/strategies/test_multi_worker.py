"""`MultiWorkerMirroredStrategy` of one worker; several have tests with processes."""

import pytest

import unisono as uni

make = uni.distribute.MultiWorkerMirroredStrategy


def test_alone_and_without_a_cluster_a_cpu_is_one_replica():
    strategy = make()
    assert strategy.num_replicas_in_sync == 1
    assert strategy.extended.should_checkpoint
    assert not strategy.cluster_resolver.cluster_spec().as_dict()


def test_what_the_guard_may_be_is_said():
    with pytest.raises(ValueError, match="guard"):
        make(guard="sometimes")


def test_the_old_signature_takes_the_communication_by_name():
    old = uni.distribute.experimental.MultiWorkerMirroredStrategy
    communication = uni.distribute.experimental.CollectiveCommunication.RING
    strategy = old(communication)
    assert strategy.num_replicas_in_sync == 1
    assert isinstance(strategy, old)
    # As in TensorFlow: the older class is made of the newer one.
    assert isinstance(strategy, uni.distribute.MultiWorkerMirroredStrategy)
    assert not isinstance(make(), old)
