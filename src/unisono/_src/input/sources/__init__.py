"""Where the elements of a dataset come from."""
