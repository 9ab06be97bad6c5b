"""Other people's loaders, as sources of a dataset."""
