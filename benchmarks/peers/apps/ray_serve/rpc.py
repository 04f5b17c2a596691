"""The gRPC service of the Ray applications: bytes in, bytes out."""

import grpc
from google.protobuf.wrappers_pb2 import BytesValue


def add_to(servicer, server):
    """Register the service as generated code would."""
    infer = grpc.unary_unary_rpc_method_handler(
        servicer.Infer, BytesValue.FromString, BytesValue.SerializeToString
    )
    handler = grpc.method_handlers_generic_handler("peers.Inference", {"Infer": infer})
    server.add_generic_rpc_handlers((handler,))
