from typing import Any

from keras.callbacks import *

from unisono._src.integrations.keras.backup import BackupAndRestore as BackupAndRestore
from unisono._src.integrations.keras.tensorboard import TensorBoard as TensorBoard

def __getattr__(name: str) -> Any: ...
