"""Adapters to model libraries; headrace injects them, no operator imports them."""
