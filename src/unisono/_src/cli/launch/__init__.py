"""Starting a program as several workers; never JAX's backend."""
