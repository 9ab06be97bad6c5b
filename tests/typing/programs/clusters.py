"""Cluster resolvers, strategies of several workers, and launching them."""

from typing import assert_type

from unisono import config, distribute, errors
from unisono.distribute import cluster_resolver

spec = cluster_resolver.ClusterSpec({"worker": ["a:1", "b:2"]})
assert_type(spec.num_tasks("worker"), int)
assert_type(spec.task_address("worker", 0), str)
assert_type(spec.jobs, list[str])

resolver: cluster_resolver.ClusterResolver = cluster_resolver.TFConfigClusterResolver()
assert_type(resolver.cluster_spec(), cluster_resolver.ClusterSpec)
assert_type(resolver.task_type, str | None)
assert_type(resolver.task_id, int | None)
assert_type(resolver.explain(), cluster_resolver.Explanation)
union = cluster_resolver.UnionResolver(
    resolver, cluster_resolver.SlurmClusterResolver()
)
config.experimental_connect_to_cluster(spec, job_name="worker", task_index=0)
config.set_virtual_devices(8)

strategy = distribute.MultiWorkerMirroredStrategy(
    cluster_resolver=union,
    communication_options=distribute.experimental.CommunicationOptions(
        implementation=distribute.experimental.CommunicationImplementation.RING
    ),
    guard="strict",
)
assert_type(strategy.cluster_resolver, cluster_resolver.ClusterResolver | None)
with strategy.scope() as entered:
    assert_type(entered, distribute.MultiWorkerMirroredStrategy)
try:
    pass
except errors.WorkerLostError as error:
    assert_type(error.worker, int | None)
