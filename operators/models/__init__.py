"""Adapters to model libraries; headrace injects them, no operator imports them.

Disables onnxruntime's telemetry (1.29 and later), which must be done before its import.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
