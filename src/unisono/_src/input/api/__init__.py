"""The public side: `Dataset`, its iterators, and distributed datasets."""
