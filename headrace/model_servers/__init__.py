"""Operators that call a model server: the Open Inference Protocol, and OpenAI's completions.

A batch of n items is n concurrent requests; the timeout of each is the time left until its item's
deadline. Requests are not retried.
"""
