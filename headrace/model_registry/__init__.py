"""Models in registries: references in the pipeline file, and the lock that pins them."""
