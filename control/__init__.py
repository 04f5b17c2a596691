"""The judgement: pure functions over frozen data."""
