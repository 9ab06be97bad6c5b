"""Compares runs of a program on different numbers of replicas."""
