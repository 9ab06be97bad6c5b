"""Which worker and which replica gets which part of a dataset."""
