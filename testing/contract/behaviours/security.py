"""TLS and SASL: who gets in, who does not, and what a client that does not is told.

A cluster may have several listeners, and a behaviour takes the one that it is about; without it, it is left
out. Wrong passwords are tried: on a cluster that counts them, the user may be locked.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from functools import partial

from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.connect import address_text
from splashdam.testing.contract.behaviour import BEHAVIOURS, Behaviour, Run, behaviour, expect
from splashdam.testing.contract.behaviours.produce import values
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.testing.contract.vocabulary import NOT_IN_CLIENT, Listener, Outcome, Refused

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = {"SASL_PLAINTEXT": "over plaintext", "SASL_SSL": "over TLS"}

_ANOTHER_CA = """\
-----BEGIN CERTIFICATE-----
MIIB2DCCAX2gAwIBAgIUCd45UH60pJT6HbbfSpd6N6+pmhowCgYIKoZIzj0EAwIw
QDEbMBkGA1UECgwSc3BsYXNoZGFtIGNvbnRyYWN0MSEwHwYDVQQDDBhBIENBIHRo
YXQgc2lnbmVkIG5vdGhpbmcwIBcNMjYxMTI2MTUxMTQ3WhgPMjEyNjExMDIxNTEx
NDdaMEAxGzAZBgNVBAoMEnNwbGFzaGRhbSBjb250cmFjdDEhMB8GA1UEAwwYQSBD
QSB0aGF0IHNpZ25lZCBub3RoaW5nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
SiX6qICu4cqJB+ymMSmeiXv0WthLKsQrITGhR2M4/p6+fToF+MFYy89/xxFh+G9n
q40EtGWETBF/4I7aNeKcf6NTMFEwHQYDVR0OBBYEFJm8fAD4bUexOqgorUdpxhuX
W0BSMB8GA1UdIwQYMBaAFJm8fAD4bUexOqgorUdpxhuXW0BSMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAIjh/4cblkJgYDPTKUw9arGNKe3eifhh
hVIs5/yepNJhAiEAkxHJ15TnkAgXVHSK3KpxKB9VHnCCC2NijCTNBVZUGbk=
-----END CERTIFICATE-----
"""
"""A CA whose key was thrown away: no broker's certificate is signed by it."""

_NAME_MISMATCH = (62, 64)
"""OpenSSL's codes of a certificate that is for other names, and for other addresses."""


def listener_of(run: Run, wanted: Callable[[Listener], bool], what: str) -> Listener:
    """Return the first listener that is wanted.

    Raises:
        Refused: there is none; the text names ``what``.
    """
    for each in run.listeners:
        if wanted(each):
            return each
    raise Refused(NOT_IN_CLIENT, f"no listener {what} was given")


def _with_tls(run: Run) -> Listener:
    """Return a listener with TLS; rather one without SASL, so that only TLS can fail."""
    found = [each for each in run.listeners if each.uses_tls]
    plain = [each for each in found if each.mechanism is None]
    return listener_of(run, lambda each: each in (plain or found), "with TLS")


def _sends_and_reads(run: Run, listener: Listener) -> None:
    topic = run.topic()
    with run.client.at(listener) as client:
        (sent,) = client.produce(topic, values("secret"))
        expect((sent.error, sent.offset), (None, 0), f"error and offset ({sent.text})")
        read = client.fetch(topic, count=1)
    expect([each.value for each in read], [b"secret"], "values")


def _is_refused(run: Run, listener: Listener) -> Outcome:
    """Check that a client cannot send; return the error that it reports."""
    topic = run.topic()
    try:
        with run.client.at(listener) as client:
            (outcome,) = client.produce(topic, values("secret"))
    except Refused as error:
        if error.name == NOT_IN_CLIENT:
            raise
        outcome = Outcome(error=error.name, text=error.text)
    expect(outcome.error is not None, True, "refused")
    expect(run.helper.offsets(topic, "latest"), 0, "log end offset")
    return outcome


@behaviour("produce", "fetch")
def a_trusted_certificate_lets_in(run: Run) -> None:
    """Over TLS a client that trusts the CA of the broker's certificate sends and reads."""
    _sends_and_reads(run, _with_tls(run))


@behaviour("produce")
def a_certificate_of_another_ca_is_refused(run: Run) -> None:
    """A client that trusts only another CA gives up by itself, and has sent nothing."""
    _is_refused(run, _by_another_ca(_with_tls(run)))


@behaviour("produce")
def a_certificate_of_another_host_is_refused(run: Run) -> None:
    """A client that asks for a name that the certificate lacks gives up by itself, and has sent nothing."""
    _is_refused(run, _by_another_name(_with_tls(run)))


@behaviour("produce")
def a_certificate_is_named_as_the_reason(run: Run) -> None:
    """The error of a client that trusts another CA, or asks for another name, tells of TLS."""
    listener = _with_tls(run)
    for refused in (_by_another_ca(listener), _by_another_name(listener)):
        outcome = _is_refused(run, refused)
        said = f"{outcome.error}: {outcome.text}"
        is_named = any(word in said.casefold() for word in ("certificate", "ssl", "tls"))
        expect(is_named, True, f"the reason is in {said!r}")


@behaviour("produce")
def a_wrong_password_is_named_as_the_reason(run: Run) -> None:
    """With every mechanism, over plaintext and over TLS, the error is SASL_AUTHENTICATION_FAILED."""
    for listener in with_passwords(run):
        outcome = _is_refused(run, with_a_wrong_password(listener))
        expect(outcome.error, "SASL_AUTHENTICATION_FAILED", f"error ({outcome.text})")


def _by_another_ca(listener: Listener) -> Listener:
    return listener.but(ssl_cafile=_ANOTHER_CA)


def _by_another_name(listener: Listener) -> Listener:
    """Return the listener by an address that its certificate is not for.

    Raises:
        Refused: there is none.
    """
    trusted = listener.but(ssl_check_hostname=True)
    options = trusted.without_login().security
    host, port = parse_bootstrap_servers(listener.bootstrap_servers)[0]
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        other = str(address[0])
        try:
            RawConnection(other, port, options).close()
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in _NAME_MISMATCH:
                return trusted._replace(bootstrap_servers=address_text(other, port))
            raise
        except OSError:  # the broker listens on another of the addresses
            continue
    raise Refused(NOT_IN_CLIENT, f"the certificate of {host} is for its IP addresses, too")


def with_passwords(run: Run) -> list[Listener]:
    """Return the listeners with SASL and passwords.

    Raises:
        Refused: there is none.
    """
    found = [each for each in run.listeners if each.mechanism in MECHANISMS]
    if not found:
        raise Refused(NOT_IN_CLIENT, "no listener with SASL and passwords was given")
    return found


def _with_sasl(run: Run, protocol: str, mechanism: str) -> Listener:
    return listener_of(
        run,
        lambda each: (each.protocol, each.mechanism) == (protocol, mechanism),
        f"with {protocol} and {mechanism}",
    )


def _takes_the_right_password(protocol: str, mechanism: str, run: Run) -> None:
    _sends_and_reads(run, _with_sasl(run, protocol, mechanism))


def with_a_wrong_password(listener: Listener) -> Listener:
    """Return the listener with a password that is not the user's."""
    return listener.but(sasl_plain_password=f"not {listener.security['sasl_plain_password']}")


def _refuses_a_wrong_password(protocol: str, mechanism: str, run: Run) -> None:
    _is_refused(run, with_a_wrong_password(_with_sasl(run, protocol, mechanism)))


def _declare(name: str, text: str, needs: frozenset[str], check: Callable[[str, str, Run], None]) -> None:
    for protocol, over in PROTOCOLS.items():
        for mechanism in MECHANISMS:
            title = f"{mechanism} {over} {name}"
            words = title.lower().replace(" ", "_").replace("-", "_")
            promise = f"With {mechanism} {over} {text}"
            declared = Behaviour("security", words, promise, needs, partial(check, protocol, mechanism))
            BEHAVIOURS.append(declared)


_declare(
    "takes the right password",
    "a client that knows the user's password sends and reads.",
    frozenset({"produce", "fetch"}),
    _takes_the_right_password,
)
_declare(
    "refuses a wrong password",
    "a client with a wrong password gives up by itself, and has sent nothing.",
    frozenset({"produce"}),
    _refuses_a_wrong_password,
)
