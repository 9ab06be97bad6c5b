"""Joins several processes, which then watch each other and exchange values."""
