"""AutoGraph: Python's statements on values that only a running program knows."""
