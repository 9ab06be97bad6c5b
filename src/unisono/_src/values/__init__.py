"""Values of which each replica has one, and the functions that combine them."""
