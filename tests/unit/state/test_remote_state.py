"""What lower rooms ask of parameter servers, with servers that are lists."""

import types

from unisono._src.state import remote_state


def change(cell, is_draw=False):
    return remote_state.Change((cell,), "assign", (), is_draw=is_draw)


class Cell:
    """Stands for the storage of a variable."""

    def __init__(self, home=None, array=None):
        self.home, self.array = home, array


class Group:
    """Stands for servers: notes what it is asked for."""

    def __init__(self):
        self.asked, self.applied = [], []

    def read(self, cells, draws):
        self.asked.append(cells)
        return [f"value {i}" for i, _ in enumerate(cells)]

    def apply(self, changes):
        self.applied += changes


def test_draws_are_made_when_the_program_begins_unless_a_change_came_before():
    a, b = Cell(), Cell()
    first, second = change(a, is_draw=True), change(a, is_draw=True)
    other, late = change(b), change(b, is_draw=True)
    draws, rest = remote_state.split_draws([first, other, second, late], {a, b})
    assert list(draws.values()) == [[first, second]]
    assert rest == [other, late]


def test_a_draw_of_what_the_program_does_not_read_is_made_at_its_end():
    a = Cell()
    drawn = change(a, is_draw=True)
    assert remote_state.split_draws([drawn], set()) == ({}, [drawn])


def test_all_values_of_servers_are_asked_for_together_and_in_order():
    group = Group()
    home = remote_state.Home(group, "", ())
    away, here, other = Cell(home), Cell(array="here"), Cell(home)
    found = remote_state.read_all([away, here, other])
    assert found == ["value 0", "here", "value 1"]
    assert group.asked == [[away, other]]


def test_without_cells_on_servers_nobody_is_asked():
    assert remote_state.read_all([Cell(array=1), Cell(array=2)]) == [1, 2]
    remote_state.apply_all([])


def test_changes_go_to_the_servers_of_their_cells():
    group = Group()
    made = change(Cell(remote_state.Home(group, "", ())))
    remote_state.apply_all([made])
    assert group.applied == [made]


def test_a_variable_without_parts_is_kept_beside_what_the_scope_names():
    frame = types.SimpleNamespace(placement=None, colocate=None)
    assert remote_state.find_home(frame) is None
    servers = types.SimpleNamespace(servers="servers")
    frame = types.SimpleNamespace(placement=servers, colocate="beside")
    assert remote_state.find_home(frame) == "beside"
    frame = types.SimpleNamespace(placement=servers, colocate=None)
    assert remote_state.find_home(frame).group == "servers"


def test_a_cached_read_is_made_once_for_each_program():
    frames = [types.SimpleNamespace(whole=lambda _, i=i: [i]) for i in range(2)]
    kept, a = {}, Cell()
    first = remote_state.read_once(a, frames[0], kept)
    assert remote_state.read_once(a, frames[0], kept) is first
    assert remote_state.read_once(a, frames[1], kept) == [1]
