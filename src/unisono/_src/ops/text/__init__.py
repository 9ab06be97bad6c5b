"""Text and tables of words, which are on the host alone: compiled steps have none."""
