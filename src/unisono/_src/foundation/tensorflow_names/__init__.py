"""TensorFlow's public names, and what to write for those that are not here."""
