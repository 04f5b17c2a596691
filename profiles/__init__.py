"""Measured profiles of variants."""
