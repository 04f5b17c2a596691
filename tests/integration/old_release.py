"""Headrace as of schema release 1: it writes nothing newer and can read nothing newer.

Run as ``python -m tests.integration.old_release`` it takes what ``headrace`` takes.
"""

import os

from headrace.broker.connect import WRITE_RELEASE
from headrace.cli.main import main
from schemas.codec import single_object as codec
from schemas.codec.schema_store import as_of

RELEASE = 1

if __name__ == "__main__":
    os.environ[WRITE_RELEASE] = str(RELEASE)
    old = {schema.prefix for schema in as_of(RELEASE).values()}
    for prefix in codec._READERS.keys() - old:
        del codec._READERS[prefix]
    main()
