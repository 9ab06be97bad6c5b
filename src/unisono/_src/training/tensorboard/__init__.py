"""Writing of files that TensorBoard reads."""
