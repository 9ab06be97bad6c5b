"""Private implementation; the public names are exported by the packages above."""
