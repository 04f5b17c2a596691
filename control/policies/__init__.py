"""The policies: how to allocate devices, route, drop, batch and choose models."""
