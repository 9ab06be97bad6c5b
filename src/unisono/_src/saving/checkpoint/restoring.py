"""Restoring a checkpoint: objects are matched by name, now or when they appear."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import logging
import pathlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, final

import jax

from unisono._src.foundation import errors, library_hooks
from unisono._src.saving.checkpoint import (
    array_io,
    common_version,
    deferred_restore,
    object_graph,
    part_restore,
    restore_values,
    server_values,
    worker_meeting,
    worker_parts,
)
from unisono._src.saving.checkpoint.object_graph import StateSlot
from unisono._src.saving.format import (
    array_store,
    checkpoint_directory,
    manifest,
    one_version,
)
from unisono._src.state import holding, storage

_log = logging.getLogger("unisono")
_T = TypeVar("_T")
_restore_numbers = itertools.count(1)


@final
class _Owner(NamedTuple):
    """An object of the program and the slot in which its parent holds it."""

    obj: Any
    slot: StateSlot


@final
class _Gap(NamedTuple):
    """A name below an object, and the number of the saved node that belongs there."""

    owner: _Owner
    name: str
    number: int


@final
class _Match(NamedTuple):
    """A value of the checkpoint and the slot of the object that it is restored to."""

    key: str
    entry: manifest.Entry
    slot: StateSlot
    gap: _Gap


@final
# The life of a restoration: it matches saved nodes with objects by name from the root,
# checks and reads everything, and only then changes objects. Names that no object has
# stay as gaps. A gap is closed when its attribute is set (`deferred_restore`), when a
# library's object is built (`look_again`), or by the next save, sync or question. A
# later restore of the same names ends it; otherwise both go on, and an object that both
# have a value for gets that of the later one (`deferred_restore`).
class Restoration:
    """The restore of one checkpoint, which goes on as objects appear.

    Args:
        path: the path of a committed checkpoint.
        root: the object whose children are restored.
        meeting: the meeting of the workers that restore together.

    Attributes:
        number: the place of this restore among all of the process.
        is_over: whether nothing more is restored: it failed, or the program has
            restored another checkpoint since.
        is_partial_fine: whether values that no object has taken are expected.
        bound: the numbers of the nodes that have found their object.
        given: references to the objects that have got a value, by id.
        plain: the plain values that were restored: id of the owner, and name.
        kept: the owners of plain values, kept alive so that no other object gets
            their id.
        gaps: the names that the checkpoint has and the objects lack so far.

    Raises:
        WorkerMismatchError: the workers restore different checkpoints.
        DataLossError: a file is damaged; nothing has been restored.
        NotFoundError: there is no such checkpoint.
        ValueError: a variable has another shape than its value in the checkpoint;
            nothing has been restored.
    """

    def __init__(
        self, path: pathlib.Path, root: object, meeting: worker_meeting.Meeting
    ) -> None:
        # Over until it has begun, so that `__del__` is silent if this fails.
        self.is_over = True
        self.number = next(_restore_numbers)
        self.path = path
        self.root = root
        self._meeting = meeting
        # Open while the objects that exist by now are restored, and None later.
        self._version: one_version.Version | None = None
        opened = common_version.open_same(meeting, path)
        assert opened is not None
        self._version, self.manifest = opened
        if self.manifest.header.is_step:
            checkpoint_directory.note_seen(path.parent)
        self.is_over = False
        self.is_partial_fine = False
        self.bound: set[int] = set()
        self.given: dict[int, Callable[[], Any]] = {}
        self.plain: set[tuple[int, str]] = set()
        self.kept: list[Any] = []
        self.gaps: list[_Gap] = []
        # Whether this restore replaces another one, by the number of that.
        self._replaced: dict[int, bool] = {}
        here = object_graph.fixed_slot(root)
        try:
            # The root belongs in a gap of its own, without an owner or a name.
            self._bind(here, _Gap(_Owner(None, here), "", 0))
            # Restoring can make new objects, such as the state of an optimizer.
            self.restore_new_objects()
        except BaseException:
            self.is_over = True
            raise
        finally:
            self._version.close()
            self._version = None

    # Matching.

    def _bind(self, slot: StateSlot, gap: _Gap) -> bool:
        """Restores a node and all below it to the object in a slot.

        All matches are collected before the first value changes, so that a mismatch
        leaves every object as it was.

        Returns:
            Whether the object can take the node.
        """
        matches: list[_Match] = []
        missing: list[_Gap] = []
        bound: set[int] = set()
        seen: set[tuple[int, int]] = set()
        # Breadth first, as `object_graph.walk` has numbered the nodes.
        queue = collections.deque([(slot, gap)])
        while queue:
            where, at = queue.popleft()
            obj = where.get()
            if not self._visit(where, at, matches):
                missing.append(at)
                continue
            bound.add(at.number)
            node = self.manifest.nodes[at.number]
            # Graphs may have cycles.
            if node.key is None and (id(obj), at.number) not in seen:
                seen.add((id(obj), at.number))
                queue.extend(self._match_children(_Owner(obj, where), node, missing))
        if not bound:
            return False
        self._apply(matches)
        self.bound |= bound
        for left in missing:
            self.gaps.append(left)
            self._watch(left)
        return True

    def _match_children(
        self, owner: _Owner, node: manifest.ObjectNode, missing: list[_Gap]
    ) -> Iterator[tuple[StateSlot, _Gap]]:
        """Yields the slots below an object that belong to the children of a node.

        Children without a slot are added to `missing`.
        """
        for obj in deferred_restore.owners(owner.obj):
            finder = library_hooks.state_finder_of(obj)
            if finder is not None:
                finder.prepare(obj)
        known = object_graph.child_slots(owner.obj, owner.slot)
        for name, number in node.children.items():
            gap = _Gap(owner, name, number)
            slot = known.get(name) or self._new_slot(owner.obj, name, number)
            if slot is None:
                missing.append(gap)
            else:
                yield slot, gap

    def _visit(self, slot: StateSlot, gap: _Gap, matches: list[_Match]) -> bool:
        """Whether the object in a slot can take a node; adds its value to `matches`."""
        key, obj = self.manifest.nodes[gap.number].key, slot.get()
        if key is None:
            is_container = isinstance(obj, dict | list)
            is_node = object_graph.is_state(obj) and object_graph.leaf_kind(obj) is None
            return is_container or is_node
        entry = self.manifest.entries[key]
        if not restore_values.can_take(entry, obj):
            return False
        matches.append(_Match(key, entry, slot, gap))
        return True

    def _new_slot(self, obj: object, name: str, at: int) -> StateSlot | None:
        """Returns a slot for a value that an object lacks, or None if it must wait.

        Plain values and arrays can be set at once; a variable is the program's to make.
        """
        key = self.manifest.nodes[at].key
        if key is None or self.manifest.entries[key].kind not in (
            manifest.PLAIN,
            manifest.ARRAY,
            manifest.KEY,
        ):
            return None
        # The root of a checkpoint, if such values are its state, before the checkpoint.
        for owner in reversed(deferred_restore.owners(obj)):
            if owner is not obj and object_graph.tells_children(owner):
                continue
            if type(owner) is dict:
                # Exactly a dict: a subclass may compute or refuse its entries.
                put = functools.partial(owner.__setitem__, name)
                return StateSlot(lambda: None, put)
            if deferred_restore.accepts_attribute(owner, name):
                return object_graph.attribute_slot(owner, name)
            if hasattr(owner, name):
                # A default of the class; the program will set its own value.
                break
        return None

    # Values.

    def _apply(self, matches: list[_Match]) -> None:
        """Checks every match, reads every array, then changes every object."""
        given, matches = matches, self._choose_due(matches)
        for match in matches:
            restore_values.check(match.key, match.entry, match.slot.get())
        # What servers read themselves, what is cut over devices and read part after
        # part, and all else.
        there, cut, here = _divide(matches)
        if there:
            self._use_version(lambda version: self._check_on_servers(version, there))
        wanted = {m.entry.place: m.entry for m in here if m.entry.file}
        shardings = {
            m.entry.place: where
            for m in here
            if m.entry.file and m.entry.nbytes >= array_io.LARGE_BYTES
            if (where := restore_values.choose_sharding(m.entry, m.slot.get()))
            is not None
        }
        read = self._read_arrays(wanted, shardings) if wanted else {}
        # `set_state` of a program's object can fail. It comes first, so that nothing
        # else has changed by then but parts, which are put back.
        states = [m for m in here if m.entry.kind == manifest.STATE]
        with self._restore_parts(cut):
            for match in states:
                is_slow = object_graph.needs_other_threads(match.slot.get())
                with contextlib.nullcontext() if is_slow else storage.LOCK:
                    restore_values.set_value(match.entry, match.slot, None)
        at_once = [m for m in here if m.entry.kind != manifest.STATE]
        with storage.LOCK:
            # All at once: nothing is waited for between two values.
            cells = restore_values.find_cells([m.slot.get() for m in at_once])
            holding.wait_for(cells, "a restore of a checkpoint")
            for match in at_once:
                restore_values.set_value(
                    match.entry, match.slot, read.get(match.entry.place)
                )
        if there:
            self._use_version(lambda version: self._load_on_servers(version, there))
        if self._version is not None:
            objects = [match.slot.get() for match in matches]
            server_values.remember(self.manifest, objects)
        for match in matches:
            deferred_restore.note_restored(*_find_place(match), self.number)
        for match in given:
            self._record(match)

    @contextlib.contextmanager
    def _restore_parts(self, matches: list[_Match]) -> Iterator[None]:
        """Reads what is cut over devices; puts it back if a block fails on any worker.

        A part is of no use without those of the other workers. So each keeps its old
        parts until all have read the new ones.
        """
        pairs = [(_find_cut_cell(m), m.entry) for m in matches]
        parts = [(cell, entry) for cell, entry in pairs if cell is not None]
        if not parts:
            yield
            return

        def read(version: one_version.Version) -> part_restore.PartRestore:
            made = part_restore.PartRestore(version.path / manifest.ARRAYS, parts)
            made.run()
            if not version.is_trustworthy:
                made.undo()
                raise errors.NotFoundError(self.path)
            return made

        cells = [cell for cell, _ in parts]
        with (
            holding.hold(cells, "a restore of a checkpoint"),
            self._use_version(read) as restore,
        ):
            try:
                yield
                if self._version is not None:
                    self._meeting.gather("restored", worker_meeting.FILES_SECONDS)
            except BaseException:
                restore.undo()
                raise

    def _choose_due(self, matches: list[_Match]) -> list[_Match]:
        """Returns the first match of each object that no later restore has a say in."""
        found: dict[tuple[int, str], _Match] = {}
        for match in matches:
            obj, name = _find_place(match)
            if deferred_restore.is_due(obj, name, self.number):
                found.setdefault((id(obj), name), match)
        return list(found.values())

    def _record(self, match: _Match) -> None:
        if match.entry.kind == manifest.PLAIN:
            # From its slot, because a tuple has been replaced by a new one.
            owner = match.gap.owner.slot.get()
            self.plain.add((id(owner), match.gap.name))
            self.kept.append(owner)
        else:
            obj = _strip(match.slot.get())
            self.given[id(obj)] = _make_reference(obj)

    def _read_arrays(
        self, wanted: dict[str, manifest.Entry], shardings: dict[str, Any]
    ) -> dict[str, Any]:
        """Reads arrays from the version of the checkpoint that was verified."""

        def read(version: one_version.Version) -> dict[str, Any]:
            found = array_io.read(version.path / manifest.ARRAYS, wanted, shardings)
            # Caught in `_use_version`, which says that it was replaced.
            if not version.is_trustworthy:
                raise errors.NotFoundError(self.path)
            return found

        return self._use_version(read)

    def _check_on_servers(
        self, version: one_version.Version, matches: list[_Match]
    ) -> None:
        """Raises unless parameter servers can read their parts."""
        by_name = {m.entry.file: m.entry for m in matches}
        array_store.open_all(version.path / manifest.ARRAYS, by_name)
        if not version.is_current:
            raise errors.NotFoundError(self.path)
        objects = [m.slot.get() for m in matches]
        server_values.check_seen(self.path, self.manifest, objects)

    def _load_on_servers(
        self, version: one_version.Version, matches: list[_Match]
    ) -> None:
        """Lets parameter servers read their own rows of large variables."""
        found = [(m.entry.file, _find_remote_array(m)) for m in matches]
        server_values.load(self.path, [(name, x) for name, x in found if x is not None])
        # Other processes have read it by its name.
        if not version.is_current:
            raise errors.NotFoundError(self.path)

    def _use_version(self, use: Callable[[one_version.Version], _T]) -> _T:
        """Returns the result of a function that reads the verified version.

        Raises:
            NotFoundError: it has been removed or replaced since.
        """
        version = self._version
        try:
            if version is None:
                version = one_version.Version(self.path)
                # An object that appears later must get a value of the same
                # checkpoint, not of another that has its name by now. Its files
                # were verified the first time.
                if manifest.read(version.path).digest != self.manifest.digest:
                    raise errors.NotFoundError(self.path)
            return use(version)
        except errors.DataLossError as error:
            if version is not None and version.is_current:
                version.raise_named(error)
            raise self._replaced_error() from error
        except FileNotFoundError:
            raise self._replaced_error() from None
        finally:
            if version is not None and version is not self._version:
                version.close()

    def _replaced_error(self) -> errors.NotFoundError:
        return errors.NotFoundError(
            f"The checkpoint {self.path} has been removed or replaced since it was "
            "restored, and an object that was made after that needs a value from "
            "it. Make the objects earlier, or keep more checkpoints."
        )

    # Objects that appear later.

    def restore_new_objects(
        self, owner: object = None, name: str | None = None
    ) -> None:
        """Restores the objects that have appeared since.

        Args:
            owner: the object whose attribute was set; None for every object.
            name: the name of the attribute.
        """
        for gap in list(self.gaps):
            obj, slot = gap.owner
            is_meant = owner is None or (gap.name == name and _is_of(gap, owner))
            if self.is_over or obj is None or not is_meant:
                continue
            # The slot is looked up anew: the object below it may be another one now.
            held = object_graph.child_slots(obj, slot).get(gap.name)
            if held is None:
                continue
            # Closed before: setting the attribute must not restore it again, and an
            # error is raised once; later saves must not fail because of it.
            self._close(gap)
            if not self._bind(held, gap):
                self.gaps.append(gap)
                self._watch(gap)

    def look_again(self, owner: object) -> None:
        """Restores new variables of a library's object, and watches for the rest."""
        if self.is_over:
            return
        self.restore_new_objects()
        for gap in self.gaps:
            if _is_of(gap, owner):
                deferred_restore.watch(owner, gap.name, self)

    def replaces(self, other: Restoration) -> bool:
        """Whether this is a later restore of the same names as another one."""
        if other.number not in self._replaced:
            is_same = self.manifest.nodes == other.manifest.nodes
            self._replaced[other.number] = is_same and self.number > other.number
        return self._replaced[other.number]

    def end(self) -> None:
        """Restores nothing more."""
        self.is_over = True
        for gap in self.gaps:
            self._close(gap)

    def _watch(self, gap: _Gap) -> None:
        for owner in deferred_restore.owners(gap.owner.obj):
            deferred_restore.watch(owner, gap.name, self)

    def _close(self, gap: _Gap) -> None:
        self.gaps = [g for g in self.gaps if g is not gap]
        for owner in deferred_restore.owners(gap.owner.obj):
            deferred_restore.unwatch(owner, gap.name, self)

    # Questions.

    def find_unresolved(self) -> list[str]:
        """Returns the names of the values that no object has taken."""
        names = _name_nodes(self.manifest.nodes)
        return [
            names.get(number, f"node {number}")
            for number, node in enumerate(self.manifest.nodes)
            if node.key is not None and number not in self.bound
        ]

    def find_unmatched(self) -> list[Any]:
        """Returns the objects that the checkpoint has no value for."""
        found = object_graph.walk(self.root)
        left = []
        for parent in found:
            # Plain data in a program's own object may be new; that is no mismatch.
            is_given = not object_graph.is_user_object(parent.obj)
            for name, number in parent.children.items():
                child = found[number]
                if child.kind == manifest.PLAIN:
                    if is_given and (id(parent.obj), name) not in self.plain:
                        left.append(child.obj)
                elif child.kind is not None and not self._was_given(child.obj):
                    left.append(child.obj)
        return left

    def _was_given(self, obj: object) -> bool:
        # An id can be used again after its object is gone, hence the second test.
        obj = _strip(obj)
        known = self.given.get(id(obj))
        return known is not None and known() is obj

    def __del__(self) -> None:
        if getattr(self, "is_over", True) or self.is_partial_fine:
            return
        left = self.find_unresolved()
        if left:
            _log.warning(
                "The checkpoint %s was restored in part: %s. Call expect_partial() on "
                "the status that restore returns if this is meant.",
                self.path,
                ", ".join(left[:8]) + (" …" if len(left) > 8 else ""),
            )


def _find_remote_array(match: _Match) -> server_values.RemoteArray | None:
    """Returns the parts that a large value goes to if they are on servers, or None."""
    entry = match.entry
    is_array = entry.has_array and entry.kind != manifest.KEY
    if not is_array or not entry.file or entry.at is not None:
        return None
    return server_values.find_remote_array(match.slot.get())


def _divide(
    matches: list[_Match],
) -> tuple[list[_Match], list[_Match], list[_Match]]:
    """Returns what servers read, what is read part after part, and all else."""
    there = [m for m in matches if _find_remote_array(m) is not None]
    cut = [m for m in matches if _find_cut_cell(m) is not None]
    known = {*map(id, there), *map(id, cut)}
    return there, cut, [m for m in matches if id(m) not in known]


def _find_cut_cell(match: _Match) -> storage.Cell | None:
    """Returns the cell of a large value that is cut over devices, or None."""
    cell = worker_parts.find_cut_cell(match.slot.get())
    return cell if part_restore.is_in_parts(match.entry, cell) else None


def _is_of(gap: _Gap, owner: object) -> bool:
    """Whether the name of a gap is that of an attribute of an object."""
    return any(obj is owner for obj in deferred_restore.owners(gap.owner.obj))


def _strip(obj: object) -> Any:
    """Returns the library's variable that an object stands for, or the object."""
    return obj.owner if isinstance(obj, library_hooks.LibraryVariable) else obj


def _find_place(match: _Match) -> tuple[Any, str]:
    """Returns the object that a value is given to, or its owner and the name there."""
    obj = _strip(match.slot.get())
    is_replaced = match.entry.kind == manifest.PLAIN or isinstance(obj, jax.Array)
    if obj is None or is_replaced:
        return match.gap.owner.slot.get(), match.gap.name
    return obj, ""


def _make_reference(obj: object) -> Callable[[], Any]:
    """Returns a weak reference to an object, or a strong one if it has no weak ones."""
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj


def _name_nodes(nodes: tuple[manifest.ObjectNode, ...]) -> dict[int, str]:
    """Returns the shortest path of names to every node."""
    names = {0: "(root)"}
    queue = collections.deque([0])
    while queue:
        at = queue.popleft()
        for name, child in nodes[at].children.items():
            if child not in names:
                names[child] = f"{names[at]}.{name}"
                queue.append(child)
    return names
