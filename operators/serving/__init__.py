"""The worker: its device, slots, batches and rules, and what it sends on."""
