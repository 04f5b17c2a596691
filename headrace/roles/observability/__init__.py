"""Logs, metrics and probes of a role: what attaches its observers, and how they are shown."""
