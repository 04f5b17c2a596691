"""The call of an operator: the values that it gets and may return, and what its errors show."""
