"""The integration of Flax NNX; no other module imports Flax."""
