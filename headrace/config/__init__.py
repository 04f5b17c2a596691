"""The pipeline file: read, validated, resolved."""
