"""Strategies: policies that place state and computation on devices."""
