"""Drivers, live and simulated: the only code that waits, sends, infers and solves."""
