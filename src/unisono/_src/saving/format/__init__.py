"""The format of a checkpoint on disk: how it is read, checked and committed.

Nothing here imports JAX, so the command line can show, verify and compare checkpoints
without claiming the accelerators of a machine.
"""
