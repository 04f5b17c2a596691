"""The egress node: one answer for every query."""
