"""Grids of devices: where each core is, and which of them make a replica."""
