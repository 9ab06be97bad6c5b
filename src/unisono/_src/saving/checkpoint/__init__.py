"""Checkpoints: finding the state of objects, saving it as one unit, restoring it."""
