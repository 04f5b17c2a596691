"""The profiler: requests taken, operators loaded, samples drawn, and the process itself."""
