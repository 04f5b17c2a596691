"""The input and output of planners, and the arithmetic that planners share."""
