"""gRPC: its services, health and reflection, and the ends of calls."""
