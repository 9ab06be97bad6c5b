"""What programs call: `Dataset`, its iterators, and datasets that are distributed."""
