"""`headrace doctor`: requirements of this machine and the broker."""
