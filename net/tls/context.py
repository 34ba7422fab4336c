"""Make TLS contexts from files; mistakes in the files are reported before anything connects."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.secrets import Secret

_PEM = "-----BEGIN"


@attrs.frozen(kw_only=True)
class TlsFiles:
    """Certificates and keys; each is a path, or the PEM text itself.

    Attributes:
        names: option names for messages: of CA file, certificate, key, revocation list, password, ciphers.
        cafile: certificates of trusted CAs, or a directory of them in OpenSSL's form.
        certfile: the own certificate with its chain.
        keyfile: its private key; None: the key is in ``certfile``.
        crlfile: certificate revocation list.
        password: of the key.
        ciphers: cipher list for TLS 1.2 in OpenSSL's form.
    """

    names: tuple[str, str, str, str, str, str]
    cafile: str | None = None
    certfile: str | None = attrs.field(default=None, repr=False)
    keyfile: str | None = attrs.field(default=None, repr=False)
    crlfile: str | None = None
    password: Secret | None = attrs.field(default=None, repr=False)
    ciphers: str | None = None


def client_context(files: TlsFiles, *, check_hostname: bool) -> ssl.SSLContext:
    """Make a client's context: trusts ``cafile`` or the system's CAs, presents ``certfile`` on request.

    Raises:
        KafkaConfigurationError: a file is missing or invalid; the text names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname
    if files.cafile is None:
        context.load_default_certs()
    _load(context, files)
    return context


def server_context(files: TlsFiles, *, client_auth: str) -> ssl.SSLContext:
    """Make a broker's context.

    Args:
        files: ``certfile`` is required.
        client_auth: Kafka's ``ssl.client.auth``: ``required``, ``requested`` or ``none``.

    Raises:
        KafkaConfigurationError: as `client_context`; or client certificates are requested without a CA file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.certfile is None:
        raise KafkaConfigurationError(f"{files.names[1]} is missing: a TLS listener needs a certificate")
    if client_auth != "none":
        if files.cafile is None:
            raise KafkaConfigurationError(
                f"{files.names[0]} is missing: it names the CAs that sign the clients' certificates"
            )
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    # As Kafka's default of ``ssl.enabled.protocols``.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    ca_name, cert_name, key_name, crl_name, _, ciphers_name = files.names
    if files.cafile is not None:
        _trust(context, ca_name, files.cafile)
    if files.crlfile is not None:
        _trust(context, crl_name, files.crlfile)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if files.certfile is not None:
        _show(context, files)
    elif files.keyfile is not None:
        raise KafkaConfigurationError(f"{key_name} is given without {cert_name}")
    if files.ciphers is not None:
        try:
            context.set_ciphers(files.ciphers)
        except ssl.SSLError:
            raise KafkaConfigurationError(
                f"{ciphers_name}={files.ciphers!r}: OpenSSL knows none of these for TLS 1.2;"
                " `openssl ciphers` lists its names"
            ) from None


def _trust(context: ssl.SSLContext, name: str, source: str) -> None:
    try:
        if _PEM in source:
            context.load_verify_locations(cadata=source)
        elif os.path.isdir(source):
            context.load_verify_locations(capath=source)
        else:
            _check_readable(name, source)
            context.load_verify_locations(cafile=source)
    except ssl.SSLError as error:
        _refuse(name, source, "holds no certificates in PEM", error)


def _show(context: ssl.SSLContext, files: TlsFiles) -> None:
    _, cert_name, key_name, _, password_name, _ = files.names
    certificate = files.certfile or ""
    for name, source in ((cert_name, certificate), (key_name, files.keyfile)):
        if source is not None and _PEM not in source:
            _check_readable(name, source)

    def no_password() -> NoReturn:  # without a callback OpenSSL would prompt at the terminal
        raise KafkaConfigurationError(f"the key needs a password: set {password_name}")

    password = None if files.password is None else files.password.encode()
    try:
        with _as_file(certificate) as cert_path, _as_file(files.keyfile) as key_path:
            context.load_cert_chain(str(cert_path), key_path, password=password or no_password)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "MISMATCH" in reason:
            raise KafkaConfigurationError(f"{key_name} is not the key of {cert_name}") from None
        if files.password is not None and ("DECRYPT" in reason or not reason):
            raise KafkaConfigurationError(f"{password_name} does not open the key") from None
        _refuse(cert_name, certificate, f"holds, with {key_name}, no certificate and key in PEM", error)


@contextmanager
def _as_file(source: str | None) -> Iterator[str | None]:
    """Provide ``source`` as a path: PEM text goes to a temporary file that only this user can read."""
    if source is None or _PEM not in source:
        yield source
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(source.encode().decode())  # a Secret itself would write its mask
        file.flush()
        yield file.name


def _check_readable(name: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            is_binary = file.read(4)[:1] in (b"\x30", b"\xfe")
    except OSError as error:
        raise KafkaConfigurationError(f"{name}={path!r}: {error.strerror}") from None
    if is_binary:
        raise KafkaConfigurationError(
            f"{name}={path!r} is not PEM but binary, like a Java keystore or DER; `openssl pkcs12 -nodes` or"
            " `keytool -importkeystore -deststoretype PKCS12` help to convert it"
        )


def _refuse(name: str, source: str, problem: str, error: ssl.SSLError) -> NoReturn:
    what = name if _PEM in source else f"{name}={source!r}"
    reason = (error.reason or "").replace("_", " ").lower() or "it is empty"
    raise KafkaConfigurationError(f"{what} {problem}: {reason}") from None
