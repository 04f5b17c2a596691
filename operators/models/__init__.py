"""Adapters to model libraries; headrace injects them, no operator imports them.

No library reports usage: onnxruntime's telemetry (1.29 and later) is disabled before its import.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
