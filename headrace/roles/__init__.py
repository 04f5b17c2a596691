"""Roles as processes: wiring, logs, metrics."""
