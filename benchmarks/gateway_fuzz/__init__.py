"""Damaged requests for a gateway, numbered, beside a client whose requests are whole.

NumPy's generators make the requests, not Hypothesis, whose examples are not numbered: request ``n``
of a seed is always the same, so that a run can be made in pieces and a finding repeated.
"""
