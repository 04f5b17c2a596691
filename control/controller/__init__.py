"""The control node: events in, plans and command results out."""
