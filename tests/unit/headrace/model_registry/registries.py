"""Registries in their on-disk form, and a server that answers like MLflow's."""

import json
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MLMODEL = """\
flavors:
  onnx: {data: model.onnx, onnx_version: 1.23.0}
  python_function: {data: model.onnx, loader_module: mlflow.onnx}
signature:
  inputs: '[{"name": "pixels", "type": "tensor", "tensor-spec": {"dtype": "float32",
    "shape": [-1, 4]}}]'
  outputs: '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}]'
"""


def model_folder(folder: Path, files: Mapping[str, str] = {"MLmodel": MLMODEL}) -> Path:
    """Write a logged model: its files and the weights."""
    folder.mkdir(parents=True)
    for name, text in {**files, "model.onnx": "weights"}.items():
        (folder / name).write_text(text)
    return folder


def file_store(folder: Path, source: str, version: str = "3") -> Path:
    """Write MLflow's file store with a model `reader` whose `champion` is this version."""
    model = folder / "models" / "reader"
    (model / "aliases").mkdir(parents=True)
    (model / "aliases" / "champion").write_text(version)
    (model / f"version-{version}").mkdir()
    (model / f"version-{version}" / "meta.yaml").write_text(
        f"name: reader\nsource: models:/m-1\nstorage_location: {source}\nversion: {version}\n"
    )
    return folder


def hub_cache(home: Path, commit: str, files: Mapping[str, bytes]) -> Path:
    """Write the hub's cache below HF_HOME with one snapshot of org/name on the branch main."""
    repository = home / "hub" / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for name, content in files.items():
        path = repository / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return home


@contextmanager
def mlflow_server(
    model: Path, token: str, artifacts: str = "mlflow-artifacts:/1/a model", broken: str = "",
    alias: bytes = b'{"model_version": {"version": "3"}}', elsewhere: str = "",
) -> Iterator[str]:  # fmt: skip
    """Serve MLflow's REST interface with a model `reader`, version 3, to callers with the token.

    The connection breaks off a byte before the end of the file ``broken``. ``alias`` is the answer
    to a request for the alias. ``elsewhere``: the server to which it redirects every request.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self._found() if self._allowed() else None
            status = 403 if not self._allowed() else 404 if found is None else 200
            self.send_response(307 if elsewhere else status)
            self.send_header("Location", elsewhere + self.path)
            if broken and self.path.endswith(f"/{broken}"):
                self.send_header("Content-Length", str(len(found or b"{}") + 1))
            self.end_headers()
            self.wfile.write(found or b"{}")

        def _allowed(self) -> bool:
            return self.headers["Authorization"] == f"Bearer {token}"

        def _found(self) -> bytes | None:
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query))
            path = url.path.removeprefix("/api/2.0/")
            if path == "mlflow/registered-models/alias" and query == {
                "name": "reader", "alias": "champion",
            }:  # fmt: skip
                return alias
            if path == "mlflow/model-versions/get-download-uri" and query["name"] == "reader":
                return json.dumps({"artifact_uri": artifacts}).encode()
            start = "mlflow-artifacts/artifacts/1/a%20model/"
            file = model / path.removeprefix(start)
            return file.read_bytes() if path.startswith(start) and file.is_file() else None

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a test's stderr is for its failure."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
