"""Compass and Circinus: search a query plan for each session and schedule all sessions together.

``search/`` finds the plan of one session, ``schedule/`` puts the plans of all on shared GPUs; both
pack shares of GPUs by ``packing.py``.
"""
