"""Encoding and decoding of the records on each topic."""
