"""Several processes: how they join, watch each other and tell each other things."""
