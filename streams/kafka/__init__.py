"""The Kafka client behind the drivers: configuration, transport, checks before start."""
