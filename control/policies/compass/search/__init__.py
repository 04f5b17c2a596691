"""Search a query plan for one session: cost-aware, multi-objective, with adaptive profiling."""
