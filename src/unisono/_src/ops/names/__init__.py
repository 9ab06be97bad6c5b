"""The functions of the table of TensorFlow's everyday names, written from it."""
