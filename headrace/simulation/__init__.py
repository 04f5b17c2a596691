"""Runs in virtual time: single runs, batches, comparisons."""
