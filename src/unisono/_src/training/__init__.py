"""What a training loop uses: optimizers, metrics, losses, progress, profiles."""
