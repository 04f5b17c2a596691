"""Loki: hardware and accuracy scaling by a MILP."""
