"""The control app: Faust around the controller."""
