from typing import Any

from keras.losses import *

from unisono._src.integrations.keras.former_names import Reduction as Reduction

def __getattr__(name: str) -> Any: ...
