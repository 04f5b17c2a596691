"""The simulated driver: a heap of events in virtual time."""
