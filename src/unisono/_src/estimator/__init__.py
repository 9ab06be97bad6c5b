"""Trains, evaluates and uses model functions: the estimators of TensorFlow."""
