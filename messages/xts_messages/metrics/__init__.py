"""Metrics: their declaration, and the process that serves them."""
