"""What every planner is given, what it returns, and the checks of both."""
