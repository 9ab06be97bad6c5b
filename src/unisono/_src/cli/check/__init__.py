"""`unisono check`: lists the changes that a TensorFlow program needs to run here."""
