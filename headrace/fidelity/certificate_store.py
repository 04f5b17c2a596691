"""The certificates of a pipeline, misses included: a folder beside its file.

``pipeline.certificates/`` holds, for ``pipeline.yaml``, a prediction (``TIME.prediction.json``)
and its certificate (``TIME.certificate.json``) for every run. A prediction without a certificate
was not judged: its live runs were broken off.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.atomic_file import write_whole
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import CertificateError
from headrace.fidelity.certificate import Certificate
from headrace.fidelity.drift import beyond_bound, drift_text
from headrace.simulation.world_file import named_profiles

FOLDER = ".certificates"
PREDICTION, CERTIFICATE = ".prediction.json", ".certificate.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A prediction that was made; ``certificate`` is None if it was never judged."""

    at: str  # the files' common name: the time of the prediction
    sha256: str  # of the prediction as the file has it now
    certificate: Certificate | None

    @property
    def genuine(self) -> bool:
        """Whether the prediction is still the one that was judged."""
        return self.certificate is None or self.certificate.sha256 == self.sha256


def folder(file: Path) -> Path:
    """Return the folder of a pipeline file's certificates."""
    return file.with_name(file.stem + FOLDER)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def keep_prediction(file: Path, at: str, document: Mapping[str, Any]) -> Path:
    """Write a prediction and return its path; raises ``CertificateError`` if it cannot be kept."""
    path = folder(file) / (at + PREDICTION)
    try:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise CertificateError(
            f"the prediction {path} cannot be written ({error.strerror}), and one that is not kept "
            "proves nothing; make the folder writable"
        ) from error
    return path


def store_certificate(file: Path, at: str, certificate: Certificate) -> Path:
    """Write a certificate beside its prediction and return its path."""
    path = folder(file) / (at + CERTIFICATE)
    write_whole(path, json.dumps(certificate.as_stored(), indent=1, allow_nan=False) + "\n")
    return path


def stored_certificates(file: Path) -> tuple[Kept, ...]:
    """Return everything kept for a pipeline file, oldest first; raises ``CertificateError``."""
    found = []
    for path in sorted(folder(file).glob("*" + PREDICTION)):
        at = path.name.removesuffix(PREDICTION)
        judged = path.with_name(at + CERTIFICATE)
        certificate = _read(judged) if judged.exists() else None
        found.append(Kept(at=at, sha256=sha256(path), certificate=certificate))
    return tuple(found)


def newest(file: Path) -> Certificate | None:
    """Return the newest certificate of a pipeline file, None without one."""
    found = [each.certificate for each in stored_certificates(file) if each.certificate is not None]
    return found[-1] if found else None


def known_drift(file: Path, world_sha256: str) -> str:
    """Return a clause if the newest certificate that a calibration predicted says that the machine
    drifted since; "" otherwise, also if the certificates cannot be read.

    ``world_sha256`` is that of the calibration's file, "" without a calibration.
    """
    try:
        found = [each.certificate for each in stored_certificates(file)]
    except (CertificateError, OSError):
        return ""
    of = [each for each in found if each and each.world and each.world["sha256"] == world_sha256]
    if not of or not beyond_bound(of[-1].drift):
        return ""
    return f"; certificate of {of[-1].predicted_at}: {drift_text(of[-1].drift)}"


def _read(path: Path) -> Certificate:
    try:
        return Certificate.from_stored(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        if isinstance(error, CertificateError):
            raise
        raise CertificateError(
            f"the certificate {path} cannot be read; run `headrace fidelity` again"
        ) from error


def stale(certificate: Certificate, file: PipelineFile) -> tuple[str, ...]:
    """Return the names of the files that changed after the certificate was made."""
    it = certificate.conditions
    known = {it.file: it.file_sha256, **it.profiles_sha256}
    files = {file.path.name: file.path, **named_profiles(file)}
    return tuple(name for name, path in files.items() if known.get(name) != sha256(path))
