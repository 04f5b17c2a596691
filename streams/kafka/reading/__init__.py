"""The reading thread's consumer: the slots that it reads, and those that have fallen silent."""
