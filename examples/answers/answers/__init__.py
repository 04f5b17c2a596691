"""Questions about Headrace, answered from its own pages: retrieve, rerank, generate."""
