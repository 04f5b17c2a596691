"""Measured accuracy of answers, by labels and by shadows, and its drift from the profile."""
