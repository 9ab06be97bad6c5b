"""What a dataset does to elements on their way."""
