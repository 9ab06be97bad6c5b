from typing import Any

from keras.layers import *

def __getattr__(name: str) -> Any: ...
