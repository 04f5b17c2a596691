"""Codecs of records: Avro, Confluent framing, raw values, JSON."""
