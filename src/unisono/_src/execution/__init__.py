"""Running a function on all replicas: contexts, two executors, compiled programs."""
