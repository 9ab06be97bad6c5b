"""Checkpoints: finding state in objects, writing it as one unit, putting it back."""
