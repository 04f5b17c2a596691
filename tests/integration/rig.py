"""The rig, under the name that the tests know."""

from benchmarks.rig import WAIT_S, Rig, Stuck, ends, in_time, recovered_s

__all__ = ["WAIT_S", "Rig", "Stuck", "ends", "in_time", "recovered_s"]
