"""The everyday names of each public module, written from their table."""
