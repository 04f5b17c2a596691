"""Run Headrace as of an earlier schema release: it neither writes nor reads newer records.

``python -m tests.integration.old_release`` takes the arguments of ``headrace``;
``HEADRACE_WRITE_RELEASE`` sets the release.
"""

import os

import operators.reporter
from headrace.broker.connect import WRITE_RELEASE
from headrace.cli.main import main
from schemas.codec import single_object as codec
from schemas.codec.schema_store import as_of

if __name__ == "__main__":
    release = int(os.environ[WRITE_RELEASE])
    operators.reporter.RELEASE = release
    old = {schema.prefix for schema in as_of(release).values()}
    for prefix in codec._READERS.keys() - old:
        del codec._READERS[prefix]
    main()
