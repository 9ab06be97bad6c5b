"""Finds out which processes a cluster has, and which of them this one is."""
