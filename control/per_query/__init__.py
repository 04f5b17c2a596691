"""Decisions taken for every query: admission, routing, batching, dropping."""
