"""The Kafka client behind the drivers: configuration, transport, preflight checks."""
