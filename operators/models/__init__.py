"""Adapters to model libraries; headrace injects them, no operator imports them.

None of them reports to anyone: onnxruntime (1.29 and later) sends its maker what it runs, unless
this is set before it is imported.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
