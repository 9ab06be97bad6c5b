# Programs that are read, and never run.
collect_ignore = ["corpus"]
