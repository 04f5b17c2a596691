"""`headrace fidelity`: a live run and a simulated one, compared."""
