"""Arrival times: seeded processes, files, topics."""
