"""Self-contained HTML pages with charts."""
