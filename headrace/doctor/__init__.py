"""`headrace doctor`: check the requirements of this machine and the broker."""
