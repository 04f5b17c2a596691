"""Kubernetes manifests of a pipeline, from its file."""
