"""The command line; it starts programs and never JAX's backend."""
