"""Decisions of the control plane: pure functions over frozen data."""
