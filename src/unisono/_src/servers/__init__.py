"""Parameter servers: a coordinator gives functions to workers, servers keep state."""
