"""Decisions for every query: admission, routing, batching, dropping."""
