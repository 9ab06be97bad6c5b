"""The tree of a dataset, and the protocol of reading from it."""
