"""Broker administration for roles: topics, their settings, rights."""
