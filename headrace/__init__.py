"""The front door: wiring and the terminal."""
