"""Estimates from reports: demand, multiplicative factors, slowdown."""
