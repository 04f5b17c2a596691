"""The roles as processes: wiring, logs, metrics."""
