"""The state of running pipelines, from plans and reports."""
