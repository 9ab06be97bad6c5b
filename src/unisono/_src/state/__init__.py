"""Variables, and the cells that hold their arrays."""
