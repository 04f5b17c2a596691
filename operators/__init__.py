"""The hands: state machines that hold queues and ask control."""
