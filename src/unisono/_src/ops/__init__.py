"""TensorFlow's everyday names: functions of arrays, control flow, random numbers."""
