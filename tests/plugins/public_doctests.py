"""Lets doctest find the examples of public names where they are written.

Doctest looks at what says that it comes from the module at hand; a public class says
that it comes from a public module.
"""

import doctest
import inspect

from unisono._src.foundation import public_names

_from_module = doctest.DocTestFinder._from_module


def _is_of_module(self, module, thing):
    if inspect.isclass(thing) or inspect.isfunction(thing):
        home = public_names.homes.get(thing)
        if home is not None and module is not None:
            return home == module.__name__
    return _from_module(self, module, thing)


doctest.DocTestFinder._from_module = _is_of_module
