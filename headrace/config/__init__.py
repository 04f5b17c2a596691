"""Read, validate and resolve the pipeline file."""
