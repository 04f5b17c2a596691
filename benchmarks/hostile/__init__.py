"""Hostile producers: they may write to the input topic, and try to stop the service."""
