"""Starts a program as several workers, without starting JAX's backend."""
