"""Adapters to other libraries; the only modules that know them."""
