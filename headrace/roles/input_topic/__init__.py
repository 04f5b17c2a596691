"""Look-ups of the input topic: commits, changes, recent inputs and sizes."""
