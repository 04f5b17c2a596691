"""Validate manifests with Kubernetes' own schemas; run in the environment that has the schemas.

python kubernetes_calls.py MANIFEST_FILE      prints the number of objects checked
"""

import sys
from pathlib import Path

import kubernetes_validate
import yaml

OLDEST, NEWEST = 31, 37
CORE = ("v1", "apps/v1", "policy/v1")


def main(path: Path) -> None:
    objects = [o for o in yaml.safe_load_all(path.read_text()) if o["apiVersion"] in CORE]
    for minor in range(OLDEST, NEWEST + 1):
        for each in objects:
            kubernetes_validate.validate(each, f"1.{minor}", strict=True)
    print(len(objects))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
