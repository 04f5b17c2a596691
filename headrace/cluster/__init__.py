"""Start, supervise and end a pipeline's processes on this machine."""
