"""The integration of Keras 3 on JAX; no other module imports Keras."""

from unisono._src.integrations.keras import backend_choice

# Before the modules of this package import Keras: it reads its backend only once.
backend_choice.choose()

# Here, because the import loads modules of this package (`libraries`): one of them
# that imported Keras first would be found half loaded.
import keras  # noqa: E402, F401
