"""`headrace fidelity`: compare a live run with a simulated one."""
