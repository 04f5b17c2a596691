"""The nerves: the only code that moves time."""
