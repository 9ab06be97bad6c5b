"""The command line, which starts programs but never JAX's backend."""
