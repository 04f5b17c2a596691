"""The bytes on each topic."""
