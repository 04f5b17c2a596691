"""Kills and freezes of planner, profilers and workers in each phase of a session, on a broker."""
