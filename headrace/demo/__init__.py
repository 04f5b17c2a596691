"""`headrace demo`: run a pipeline, a load and a report in one command."""
