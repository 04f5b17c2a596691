"""Observers of events and effects: tape, log, metrics, run metrics."""
