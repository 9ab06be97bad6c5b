"""Files and folders of this machine, under the names of ``tf.io.gfile``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.local_files import (
    GFile as GFile,
    copy as copy,
    exists as exists,
    glob as glob,
    isdir as isdir,
    join as join,
    listdir as listdir,
    makedirs as makedirs,
    mkdir as mkdir,
    remove as remove,
    rename as rename,
    rmtree as rmtree,
    stat as stat,
    walk as walk,
)

_lazy_names.serve(__name__)
