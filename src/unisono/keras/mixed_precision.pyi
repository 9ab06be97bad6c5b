from typing import Any

from keras.mixed_precision import *

def __getattr__(name: str) -> Any: ...
