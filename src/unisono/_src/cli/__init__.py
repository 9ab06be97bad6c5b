"""The command `unisono`. It never starts JAX's backend: that takes the accelerators."""
