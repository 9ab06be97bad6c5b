"""Exported models: functions as StableHLO, weights as data, no Python code."""
