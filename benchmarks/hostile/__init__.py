"""Hostile producers: they may write to the input topic, and want the service to stop."""
