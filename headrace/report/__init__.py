"""`headrace report`: outcomes of a live pipeline over an interval."""
