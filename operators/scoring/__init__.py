"""Measured accuracy: answers joined with labels, and with the answers of their shadows."""
