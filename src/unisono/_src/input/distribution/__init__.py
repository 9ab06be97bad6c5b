"""Splits a dataset between workers and replicas, and puts it on the devices."""
