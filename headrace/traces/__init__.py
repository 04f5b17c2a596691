"""Traces of queries for OpenTelemetry, built from their answers."""
