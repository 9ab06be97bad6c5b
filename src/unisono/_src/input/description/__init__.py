"""Tables that tell a person who reads what of a dataset."""
