"""Arrival times from seeded processes, files and topics."""
