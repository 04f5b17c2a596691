"""Leases of egress partitions, which the broker enforces by the age of records."""
