"""Observers of events and effects: log, metrics, run metrics."""
