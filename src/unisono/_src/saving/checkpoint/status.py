"""What became of a restore: TensorFlow's status objects."""

from __future__ import annotations

import abc
from typing import Any

from unisono._src.saving.checkpoint.restoring import Restoration

_NOTHING = "No checkpoint specified (save_path=None); nothing is being restored."


class LoadStatus(abc.ABC):
    """What `Checkpoint.restore` and `Checkpoint.read` return."""

    @abc.abstractmethod
    def assert_consumed(self) -> LoadStatus:
        """Raise unless every value was restored, and every object got one.

        Raises:
            AssertionError: names what is left.
        """

    @abc.abstractmethod
    def assert_existing_objects_matched(self) -> LoadStatus:
        """Raise unless every object that exists now was restored.

        Raises:
            AssertionError: names what was not.
        """

    @abc.abstractmethod
    def assert_nontrivial_match(self) -> LoadStatus:
        """Raise unless something was restored.

        Raises:
            AssertionError: nothing was.
        """

    @abc.abstractmethod
    def expect_partial(self) -> LoadStatus:
        """Say that values which nobody takes are no cause for a warning."""

    def initialize_or_restore(self, session: Any = None) -> None:
        """Do nothing: values were restored at once."""
        return None

    def run_restore_ops(self, session: Any = None) -> None:
        """Do nothing: values were restored at once."""
        return None


class CheckpointLoadStatus(LoadStatus):
    """The status of a checkpoint that was read."""

    def __init__(self, restoration: Restoration) -> None:
        self._restoration = restoration

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Raise unless every value was restored, and every object got one."""
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
        """Raise unless every object that exists now was restored."""
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
        """Raise unless something below the checkpoint was restored."""
        self._restoration.restore_new_objects()
        if not any(number != 0 for number in self._restoration.bound):
            raise AssertionError(
                "Nothing except the root object matched a checkpointed value; "
                "typically the objects have other names than those in "
                f"{self._restoration.path}."
            )
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """Say that values which nobody takes are no cause for a warning."""
        self._restoration.is_partial_fine = True
        return self


class InitializationOnlyStatus(LoadStatus):
    """The status of `restore(None)`: there was nothing to restore."""

    def assert_consumed(self) -> InitializationOnlyStatus:
        """Raise: nothing was restored."""
        raise AssertionError(_NOTHING)

    def assert_existing_objects_matched(self) -> InitializationOnlyStatus:
        """Raise: nothing was restored."""
        raise AssertionError(_NOTHING)

    def assert_nontrivial_match(self) -> InitializationOnlyStatus:
        """Raise: nothing was restored."""
        raise AssertionError(_NOTHING)

    def expect_partial(self) -> InitializationOnlyStatus:
        """Do nothing."""
        return self
