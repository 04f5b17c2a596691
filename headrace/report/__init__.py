"""`headrace report`: outcomes of a live pipeline over a stretch of time."""
