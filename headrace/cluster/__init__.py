"""A pipeline's processes on this machine: start, supervise, end."""
