"""What ingress and others look up of the input topic: commits, changes, recent inputs and sizes."""
