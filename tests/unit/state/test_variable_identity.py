"""Variables are told apart by references, and found by their cells."""

import gc

import unisono
from tests.parity.programs import mirrored, variable
from unisono._src.state import variable_identity


def test_references_compare_variables_not_values():
    v, w = unisono.Variable(1.0), variable(mirrored(2), 1.0)
    assert v.ref() == v.ref()
    assert v.ref() != w.ref()
    assert v.ref() != v
    assert {v.ref(): "v", w.ref(): "w"}[w.ref()] == "w"
    assert v.ref().deref() is v
    assert w.ref().deref() is w
    assert repr(v.ref()) == f"<Reference wrapping {v!r}>"


def test_the_variable_of_a_cell_is_found_and_not_kept():
    v = variable(mirrored(2), 1.0)
    cell = v.state_cell
    # A component has its value in the same cell, and is not what the cell belongs to.
    assert v.values[1].state_cell is cell
    assert variable_identity.find(cell) is v
    del v
    gc.collect()
    assert variable_identity.find(cell) is None
