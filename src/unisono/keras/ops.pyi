from typing import Any

from keras.ops import *

def __getattr__(name: str) -> Any: ...
