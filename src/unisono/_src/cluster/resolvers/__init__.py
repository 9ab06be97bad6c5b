"""One module per environment; each makes a `ClusterSpec` of its findings there."""
