"""Compass and Circinus: query plans for sessions, by a profiled search and one schedule for all."""
