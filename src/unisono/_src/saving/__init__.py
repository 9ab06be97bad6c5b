"""State on disk: checkpoints, exported models, and an orderly end on preemption."""
