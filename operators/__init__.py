"""The data plane's nodes: state machines that hold queues and apply control's decisions."""
