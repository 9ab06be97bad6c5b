"""`unisono check`: what a TensorFlow program has to change to run here."""
