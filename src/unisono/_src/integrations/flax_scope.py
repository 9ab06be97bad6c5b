"""What a scope does to Flax NNX, and undoes when it is left."""

import contextlib

SCOPE = contextlib.nullcontext()
