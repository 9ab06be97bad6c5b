"""A mapping of the kind that programs write themselves."""

from collections.abc import Mapping


class Fixed(Mapping):
    """A user's own mapping, which allows no assignment."""

    def __init__(self, *args, **kwargs):
        self.inner = dict(*args, **kwargs)

    def __getitem__(self, key):
        return self.inner[key]

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)
