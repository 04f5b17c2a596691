"""An API server of Kubernetes without nodes: it admits and keeps objects, and no pod runs."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.interop.go_programs import kubernetes
from tests.interop.servers import free_ports, wait_until_up

STARTS_WITHIN_S = 120.0
TOKEN = "of-tests"


@dataclass(frozen=True)
class ApiServer:
    """A running API server. ``folder`` has a ``kubectl`` that knows it, and no other cluster."""

    folder: Path

    def shell(self, script: str, given: str = "") -> str:
        """Run a shell script whose ``kubectl`` is the server's, and return its output."""
        path = f"{self.folder}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(self.folder), "KUBECONFIG": "/dev/null"}
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script], capture_output=True, text=True,
            input=given, env=env, cwd=self.folder, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def apply(self, manifest: str) -> None:
        """Apply a manifest."""
        self.shell("kubectl apply -f -", manifest)


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run an API server on free ports of this machine, and end it afterwards."""
    programs, (clients, peers, secure) = kubernetes(), free_ports(3)
    key, tokens = _key(folder / "accounts.key"), folder / "tokens"
    tokens.write_text(f"{TOKEN},tester,1,system:masters\n")
    store, peer = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
    etcd = (
        "--data-dir", folder / "etcd", "--unsafe-no-fsync", "--initial-cluster", f"default={peer}",
        "--listen-client-urls", store, "--advertise-client-urls", store,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
    )  # fmt: skip
    server = (
        "--etcd-servers", store, "--cert-dir", folder / "certificates", "--bind-address",
        "127.0.0.1", "--secure-port", secure, "--service-account-issuer", "https://localhost",
        "--service-account-key-file", key, "--service-account-signing-key-file", key,
        "--token-auth-file", tokens, "--authorization-mode", "AlwaysAllow",
        "--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins",
        "ServiceAccount",  # a controller, which does not run, makes the account of pods
    )  # fmt: skip
    kubectl = folder / "kubectl"
    kubectl.write_text(
        f"#!/bin/sh\nexec {programs / 'kubectl'} --server https://127.0.0.1:{secure} "
        f'--insecure-skip-tls-verify --token {TOKEN} "$@"\n'
    )
    kubectl.chmod(0o755)
    with _running(programs / "etcd", etcd, folder) as process:
        wait_until_up(f"{store}/health", process, folder / "etcd.log", STARTS_WITHIN_S)
        with _running(programs / "kube-apiserver", server, folder) as process:
            api = ApiServer(folder)
            waits = "until kubectl get namespace default; do kill -0 $SERVER; sleep 0.2; done"
            api.shell(f"SERVER={process.pid}; {waits}")
            yield api


@contextmanager
def _running(
    program: Path, arguments: Sequence[object], folder: Path
) -> "Iterator[subprocess.Popen[bytes]]":
    with (folder / f"{program.name}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *map(str, arguments)], stdout=log, stderr=log, cwd=folder
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _key(path: Path) -> Path:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return path
