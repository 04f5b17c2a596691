"""The live driver: Kafka, the wall clock, models on threads."""
