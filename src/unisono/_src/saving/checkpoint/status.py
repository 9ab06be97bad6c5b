"""The status objects that a restore returns, as TensorFlow's."""

from __future__ import annotations

import abc
from typing import Any, final

from unisono._src.saving.checkpoint.restoring import Restoration

_NOTHING = "No checkpoint specified (save_path=None); nothing is being restored."


class LoadStatus(abc.ABC):
    """The result of `Checkpoint.restore` and `Checkpoint.read`."""

    @abc.abstractmethod
    def assert_consumed(self) -> LoadStatus:
        """Raises unless every value was restored and every object got a value.

        Raises:
            AssertionError: something is left; the message names it.
        """

    @abc.abstractmethod
    def assert_existing_objects_matched(self) -> LoadStatus:
        """Raises unless every object that exists now was restored.

        Raises:
            AssertionError: an object was not restored; the message names it.
        """

    @abc.abstractmethod
    def assert_nontrivial_match(self) -> LoadStatus:
        """Raises unless something was restored.

        Raises:
            AssertionError: nothing was restored.
        """

    @abc.abstractmethod
    def expect_partial(self) -> LoadStatus:
        """Suppresses the warning about values that no object has taken."""

    def initialize_or_restore(self, session: Any = None) -> None:
        """Does nothing, because values are restored at once."""
        return None

    def run_restore_ops(self, session: Any = None) -> None:
        """Does nothing, because values are restored at once."""
        return None


@final
class CheckpointLoadStatus(LoadStatus):
    """The status of the restore of a checkpoint.

    >>> import tempfile, unisono
    >>> v, w = unisono.Variable(1.0), unisono.Variable(2.0)
    >>> path = unisono.train.Checkpoint(v=v, w=w).write(tempfile.mkdtemp() + "/both")
    >>> status = unisono.train.Checkpoint(v=v).read(path).expect_partial()
    >>> status.assert_existing_objects_matched() is status
    True
    >>> status.assert_consumed()
    Traceback (most recent call last):
    ...
    AssertionError: Unresolved object in checkpoint (root).w: ...
    """

    def __init__(self, restoration: Restoration) -> None:
        self._restoration = restoration

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Raises unless every value was restored and every object got a value."""
        self._restoration.restore_new_objects()
        left = self._restoration.find_unresolved()
        if left:
            shown = ", ".join(left[:10])
            raise AssertionError(
                f"Unresolved object in checkpoint {shown}: {len(left)} value(s) of "
                f"{self._restoration.path} found no object to go to."
            )
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """Raises unless every object that exists now was restored."""
        self._restoration.restore_new_objects()
        left = self._restoration.find_unmatched()
        if left:
            raise AssertionError(
                f"Found {len(left)} Python objects that were not bound to checkpointed "
                "values, likely due to changes in the Python program. Showing "
                f"{min(len(left), 10)} of {len(left)} unmatched objects: {left[:10]}"
            )
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """Raises unless something below the checkpoint was restored."""
        self._restoration.restore_new_objects()
        if not any(number != 0 for number in self._restoration.bound):
            raise AssertionError(
                "Nothing except the root object matched a checkpointed value; "
                "typically the objects have other names than those in "
                f"{self._restoration.path}."
            )
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """Suppresses the warning about values that no object has taken."""
        self._restoration.is_partial_fine = True
        return self


@final
class InitializationOnlyStatus(LoadStatus):
    """The status of `restore(None)`, which restores nothing."""

    def assert_consumed(self) -> InitializationOnlyStatus:
        """Raises `AssertionError`, because nothing was restored."""
        raise AssertionError(_NOTHING)

    def assert_existing_objects_matched(self) -> InitializationOnlyStatus:
        """Raises `AssertionError`, because nothing was restored."""
        raise AssertionError(_NOTHING)

    def assert_nontrivial_match(self) -> InitializationOnlyStatus:
        """Raises `AssertionError`, because nothing was restored."""
        raise AssertionError(_NOTHING)

    def expect_partial(self) -> InitializationOnlyStatus:
        """Does nothing, because there are no values that could be left."""
        return self
