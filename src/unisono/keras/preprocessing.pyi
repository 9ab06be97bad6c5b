from typing import Any

from keras.preprocessing import *

def __getattr__(name: str) -> Any: ...
