"""Parts of a training loop: optimizers, metrics, losses, progress, profiles."""
