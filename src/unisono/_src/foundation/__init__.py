"""Errors, options, nested structures and context frames; none knows JAX's devices.

This is the lowest layer: it imports from no other folder of the package.
"""
