"""An ingress at the edge: it hands work to the workers of its own process in memory."""
