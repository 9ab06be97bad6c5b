"""Loaders of other libraries, as sources of a plan."""
