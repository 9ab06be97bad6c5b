"""One module per environment; each makes a `ClusterSpec` of what it finds there."""
