"""Ingress at the edge: hands work in memory to the workers of its own process."""
