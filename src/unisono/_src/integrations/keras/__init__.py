"""The integration of Keras 3 on JAX; no other module imports Keras."""

from unisono._src.integrations.keras import backend_choice

# Before the modules of this package import Keras: it reads its backend only once.
backend_choice.choose()
