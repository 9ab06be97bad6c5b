"""`unisono.estimator`: a model function, trained, evaluated and used by an object."""
