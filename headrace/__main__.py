"""Run the command line: ``python -m headrace``."""

import os
import sys

# Python puts the working directory first: a user's `operators.py` there would hide our package.
if sys.path[0] == os.getcwd() and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

from headrace.cli.main import main

main()
