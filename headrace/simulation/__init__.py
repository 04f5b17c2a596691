"""Runs in virtual time: single, in batches, compared."""
