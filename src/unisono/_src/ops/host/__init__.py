"""What the everyday names compute with in datasets' functions: NumPy for JAX."""
