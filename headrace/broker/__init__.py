"""A local Apache Kafka, and how to reach any other."""
