"""The gateway: the Open Inference Protocol v2 over HTTP and gRPC in front of pipelines."""
