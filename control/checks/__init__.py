"""Independent checks of allocations and plans; they share no code with planners."""
