"""The language: what is said between processes, and inside one."""
