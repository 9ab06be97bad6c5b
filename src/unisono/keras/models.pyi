from typing import Any

from keras.models import *

from unisono._src.integrations.keras.former_names import (
    load_model as load_model,
    save_model as save_model,
)

def __getattr__(name: str) -> Any: ...
