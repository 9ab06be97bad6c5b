"""The programs are read by type checkers; nothing runs them."""

collect_ignore = ["programs"]
