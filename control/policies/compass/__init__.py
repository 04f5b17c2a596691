"""Compass and Circinus: search a query plan for each session and schedule all sessions together."""
