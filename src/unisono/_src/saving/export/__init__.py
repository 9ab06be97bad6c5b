"""Exported models: functions as StableHLO programs, weights as data, no Python code."""
