"""The sources of a plan: arrays, files and Python iterables."""
