"""Variables, and where their arrays are."""
