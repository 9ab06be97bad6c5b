"""Leaves the programs to the tests that run them with other imports."""

collect_ignore = ["programs"]
