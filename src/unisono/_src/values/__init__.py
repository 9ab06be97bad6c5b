"""Values that every replica has one of, and how they are combined."""
