"""The call of an operator: the outputs that it may return, and what its errors show."""
