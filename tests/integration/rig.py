"""The rig, under the name that the tests know."""

from benchmarks.rig import Rig, ends, in_time, recovered_s

__all__ = ["Rig", "ends", "in_time", "recovered_s"]
