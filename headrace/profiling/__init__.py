"""`headrace profile`: measure variants on real devices."""
