"""HTTP: its listener and connections, requests, answers by id and responses."""
