"""Integrations of other libraries; no other module imports those."""
