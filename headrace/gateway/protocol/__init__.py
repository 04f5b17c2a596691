"""The Open Inference Protocol: requests, tensors, responses and statuses. Pure."""
