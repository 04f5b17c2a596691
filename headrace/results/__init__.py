"""The outcome of a run: counts, time series, statistics, one query's waterfall."""
