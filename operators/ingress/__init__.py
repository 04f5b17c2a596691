"""The ingress node: a query becomes work with a deadline, or is refused."""
