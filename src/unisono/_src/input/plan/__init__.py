"""The plan of a dataset, and the cursors that read from it."""
