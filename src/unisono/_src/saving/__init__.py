"""State on disk: checkpoints, exported models, ending in order when preempted."""
