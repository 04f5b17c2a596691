"""The control app: the controller under Faust."""
