"""The format of a checkpoint on disk: reading, checking and committing it.

Nothing here needs JAX: a checkpoint can be shown, verified and compared on a machine
whose accelerators belong to somebody else.
"""
