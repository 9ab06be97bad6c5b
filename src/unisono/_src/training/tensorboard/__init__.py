"""Files that TensorBoard reads."""
