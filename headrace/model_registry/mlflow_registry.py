"""Models in MLflow's registry, without MLflow: two requests of its REST interface, or two files.

The registry is at MLFLOW_REGISTRY_URI, else MLFLOW_TRACKING_URI: the address of a server, or the
folder of a file store. Credentials are MLflow's own: MLFLOW_TRACKING_TOKEN, or
MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
"""

import base64
import http.client
import io
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from headrace.errors import Unsuccessful
from headrace.model_registry.model_files import FoundModel, read_text
from headrace.model_registry.references import Reference

API = "api/2.0/mlflow"
ARTIFACTS = "api/2.0/mlflow-artifacts/artifacts"
PATIENCE_S = 30.0
NOT_FOUND = 404


def mlflow_model(reference: Reference, env: Mapping[str, str]) -> FoundModel:
    """Return the model that a reference names now; raises ``Unsuccessful``."""
    address = env.get("MLFLOW_REGISTRY_URI") or env.get("MLFLOW_TRACKING_URI", "")
    if not address:
        raise Unsuccessful(
            f"{reference.text} is in MLflow's registry, but MLFLOW_TRACKING_URI is not set; set it "
            "to the server's address or the folder of a file store"
        )
    scheme = urllib.parse.urlsplit(address).scheme
    if scheme in ("http", "https"):
        return _from_server(reference, address.rstrip("/"), env)
    if scheme in ("", "file"):
        return _from_folder(reference, _folder(address))
    raise Unsuccessful(
        f"MLFLOW_TRACKING_URI is {address}, which only MLflow itself reads; run `mlflow server` "
        "over it and name the server's address"
    )


# ---------------------------------------------------------------------- a server


def _from_server(reference: Reference, server: str, env: Mapping[str, str]) -> FoundModel:
    def got(path: str, *keys: str, **query: str) -> str:
        url = f"{server}/{API}/{path}?{urllib.parse.urlencode(query)}"
        try:
            with _opened(url, env) as answer:
                return _within(json.loads(read_text(answer)), keys)
        except FileNotFoundError:
            raise _unknown(reference, server) from None
        except (OSError, RecursionError, ValueError) as error:
            raise Unsuccessful(
                f"MLflow's registry at {server} does not answer ({error}); check "
                "MLFLOW_TRACKING_URI and the credentials"
            ) from error

    version = reference.version
    if reference.alias:
        named = {"name": reference.name, "alias": reference.alias}
        version = got("registered-models/alias", "model_version", "version", **named)
    asked = {"name": reference.name, "version": version}
    source = got("model-versions/get-download-uri", "artifact_uri", **asked)
    return FoundModel(
        version=version, source=source, opened=_artifacts(reference, source, server, env)
    )


def _within(found: Any, keys: Sequence[str]) -> str:
    """Return the text at ``keys`` of what MLflow wrote; raises ``ValueError`` without it."""
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, str | int) or not str(found):
        raise ValueError(f"no {'.'.join(keys)} in it")
    return str(found)


def _artifacts(
    reference: Reference, source: str, server: str, env: Mapping[str, str]
) -> Callable[[str], BinaryIO]:
    """Return the function that opens a file of the artifacts at ``source``."""
    parts = urllib.parse.urlsplit(source)
    if parts.scheme != "mlflow-artifacts":
        return _files(reference, source)
    # Credentials go to the server that was named, to no other.
    if parts.netloc not in ("", urllib.parse.urlsplit(server).netloc):
        raise Unsuccessful(
            f"the files of {reference.text} are passed on by {parts.netloc}, not by {server}; name "
            "that one in MLFLOW_TRACKING_URI"
        )
    folder = urllib.parse.quote(parts.path.strip("/"))
    return lambda name: _opened(f"{server}/{ARTIFACTS}/{folder}/{urllib.parse.quote(name)}", env)


def _opened(url: str, env: Mapping[str, str]) -> BinaryIO:
    """Open an address; raises ``FileNotFoundError`` for 404 and other ``OSError``s."""
    request = urllib.request.Request(url)
    for name, value in _credentials(env).items():
        request.add_unredirected_header(name, value)  # a redirect may lead to another server
    try:
        return io.BufferedReader(_ResponseBody(urllib.request.urlopen(request, timeout=PATIENCE_S)))
    except urllib.error.HTTPError as error:
        if error.code == NOT_FOUND:
            raise FileNotFoundError(url) from error
        raise
    except http.client.HTTPException as error:
        raise _broken(error) from error


class _ResponseBody(io.RawIOBase):
    """The body of a response, whose reading raises ``OSError`` if the connection breaks off.

    ``HTTPResponse.read(n)`` itself ends as if the body were complete.
    """

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count = self._response.readinto(buffer)
        except http.client.HTTPException as error:
            raise _broken(error) from error
        if count == 0 and self._response.length:
            raise OSError(f"the connection broke off {self._response.length} bytes before the end")
        return count

    def close(self) -> None:
        self._response.close()
        super().close()


def _broken(error: http.client.HTTPException) -> OSError:
    return OSError(f"the connection broke off: {error or type(error).__name__}")


def _credentials(env: Mapping[str, str]) -> dict[str, str]:
    token, user = env.get("MLFLOW_TRACKING_TOKEN"), env.get("MLFLOW_TRACKING_USERNAME")
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user:
        pair = f"{user}:{env.get('MLFLOW_TRACKING_PASSWORD', '')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


# ---------------------------------------------------------------------- a folder


def _from_folder(reference: Reference, store: Path) -> FoundModel:
    model = store / "models" / reference.name
    try:
        version = reference.version or (model / "aliases" / reference.alias).read_text().strip()
        meta = yaml.safe_load((model / f"version-{version}" / "meta.yaml").read_text())
        moved = isinstance(meta, Mapping) and meta.get("storage_location")
        source = _within(meta, ["storage_location" if moved else "source"])
    except FileNotFoundError:
        raise _unknown(reference, str(store)) from None
    except (OSError, RecursionError, ValueError, yaml.YAMLError) as error:
        raise Unsuccessful(f"MLflow's file store {store} cannot be read: {error}") from error
    return FoundModel(version=version, source=source, opened=_files(reference, source))


def _files(reference: Reference, source: str) -> Callable[[str], BinaryIO]:
    if urllib.parse.urlsplit(source).scheme not in ("", "file"):
        raise Unsuccessful(
            f"the files of {reference.text} lie at {source}, where only MLflow's own client "
            "reads; let its server pass artifacts on (mlflow server --serve-artifacts)"
        )
    folder = _folder(source)
    return lambda name: (folder / name).open("rb")


def _folder(uri: str) -> Path:
    return Path(urllib.request.url2pathname(urllib.parse.urlsplit(uri).path))


def _unknown(reference: Reference, registry: str) -> Unsuccessful:
    what = f"alias {reference.alias}" if reference.alias else f"version {reference.version}"
    return Unsuccessful(
        f"MLflow's registry at {registry} has no model {reference.name} with the {what}; register "
        "it there or correct the reference"
    )
