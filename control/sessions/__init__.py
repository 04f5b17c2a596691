"""Sessions live: their states, their devices, and the query plans that the nodes follow."""
