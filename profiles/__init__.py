"""The memory: what we measured."""
