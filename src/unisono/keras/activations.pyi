from typing import Any

from keras.activations import *

def __getattr__(name: str) -> Any: ...
