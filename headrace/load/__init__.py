"""`headrace load`: an open loop of queries, its phases and its outcomes."""
