from typing import Any

from keras.datasets import *

def __getattr__(name: str) -> Any: ...
