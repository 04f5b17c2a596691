"""Plans are checked by code that did not make them: what an allocation and a plan must keep."""
