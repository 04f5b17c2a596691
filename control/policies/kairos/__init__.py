"""Kairos: choose a mix of devices within a budget and dispatch queries to them one by one."""
