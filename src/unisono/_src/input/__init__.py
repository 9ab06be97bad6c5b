"""Feeding replicas: splitting batches and placing the parts."""
