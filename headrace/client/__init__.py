"""Clients of a running pipeline: queries, answers, commands, load."""
