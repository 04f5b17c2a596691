"""Records to bytes and back: Avro, Confluent framing, raw values, JSON."""
