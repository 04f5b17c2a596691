"""Operators that ask a model server: the Open Inference Protocol, and OpenAI's completions.

A batch of n items is n requests at once, each with what is left until its item's deadline as its
timeout; neither repeats a request.
"""
