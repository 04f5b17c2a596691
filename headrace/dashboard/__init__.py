"""The dashboard: a read-only page on running pipelines, in a process of its own."""
