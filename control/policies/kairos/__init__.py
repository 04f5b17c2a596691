"""Kairos: which mix of devices to rent under a budget, and which query runs on which device."""
