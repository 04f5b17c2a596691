"""Sessions in virtual time, over a recording of their queries."""
