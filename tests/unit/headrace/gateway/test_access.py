"""Files of tokens, certificates and keys: the error names the file that is wrong."""

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from headrace.errors import GatewayError
from headrace.gateway.access import tokens_in
from headrace.gateway.certificates import Tls, ssl_context
from tests.integration.certificates import make_authority


def test_an_authority_of_clients_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    pem = make_authority(tmp_path / "authority.pem").server(tmp_path / "server.pem")
    clients = tmp_path / "clients.pem"
    clients.write_text("none")
    with pytest.raises(GatewayError, match=f"^{re.escape(str(clients))} has no certificate"):
        ssl_context(Tls(certificate=pem, key=pem, clients=clients))


def test_a_certificate_that_is_none_is_named_with_its_key(tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    pem.write_text("none")
    with pytest.raises(GatewayError, match="are no certificate and its key in PEM"):
        ssl_context(Tls(certificate=pem, key=pem))


def test_an_encrypted_key_is_refused_without_asking_for_its_password(tmp_path: Path) -> None:
    pem = make_authority(tmp_path / "authority.pem").server(tmp_path / "server.pem")
    key = load_pem_private_key(pem.read_bytes(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(key.private_bytes(*form))
    with pytest.raises(GatewayError, match=r"key\.pem is encrypted; write it without a password"):
        ssl_context(Tls(certificate=pem, key=encrypted))


def test_the_first_token_of_a_file_with_a_byte_order_mark_is_known(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("first\n# second\nthird\n", encoding="utf-8-sig")
    tokens = tokens_in(path)
    assert [tokens.admit(f"Bearer {name}") for name in ("first", "second", "third")] == [
        True, False, True,
    ]  # fmt: skip


def test_a_token_is_admitted_as_it_is_in_the_file_and_nothing_like_it(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("p?ss\nwörd\ntwo words\na\u2028b\r\n")
    tokens = tokens_in(path)
    assert all(map(tokens.admit, ("Bearer p?ss", "bearer  wörd ", "Bearer two words")))
    assert tokens.admit("Bearer a\u2028b")
    # Of the bytes p\xe4ss, which are no UTF-8, aiohttp makes a surrogate.
    assert not any(map(tokens.admit, ("Bearer p\udce4ss", "Bearer b", "Bearer ", "Basic p?ss")))


def test_a_file_of_tokens_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"first\nw\xf6rd\n")
    with pytest.raises(GatewayError, match=r"tokens is not UTF-8 \(byte 7\).* write it as UTF-8"):
        tokens_in(path)
