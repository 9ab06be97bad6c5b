"""TensorFlow's everyday names: arrays, mathematics and neural networks."""
