"""Adapters to real models; handed in by headrace, imported by no operator."""
