"""Programs of other libraries under strategies."""
