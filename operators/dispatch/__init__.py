"""Central queues: queries or items that wait for a free device, matched to it by a policy."""
