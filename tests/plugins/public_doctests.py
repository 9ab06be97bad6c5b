"""Lets doctest find the examples of public names in the modules that define them.

Doctest takes the objects whose `__module__` is the module that it searches. The
`__module__` of a public class is a public module, not the one that defines it.
"""

import doctest
import inspect
from typing import Any

from unisono._src.foundation import public_names

# There is no public way to tell doctest where an object comes from.
_Finder: Any = doctest.DocTestFinder
_from_module = _Finder._from_module


def _is_of_module(self, module, thing):
    if inspect.isclass(thing) or inspect.isfunction(thing):
        home = public_names.homes.get(thing)
        if home is not None and module is not None:
            return home == module.__name__
    return _from_module(self, module, thing)


_Finder._from_module = _is_of_module
