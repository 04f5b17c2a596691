"""`headrace profile`: variants measured on real devices."""
