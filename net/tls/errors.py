"""What went wrong between two ends of TLS, and what to do about it, in words."""

from __future__ import annotations

import ssl

from splashdam.model.errors import (
    KafkaConnectionError,
    KafkaError,
    SslAuthenticationError,
    WrongListenerError,
)

_CERTIFICATE = {
    9: ("its certificate is not valid yet", "check the clocks of both machines"),
    10: ("its certificate has expired", "renew it, or check this machine's clock"),
    18: ("its certificate is self-signed and not among those trusted", "name it, or its CA, in ssl_cafile"),
    19: ("its certificate was signed by a CA that is not trusted", "name that CA in ssl_cafile"),
    20: ("its certificate was signed by a CA that is not trusted", "name that CA in ssl_cafile"),
    21: ("its certificate cannot be verified alone", "let the broker send its chain, or name the CA"),
    23: ("its certificate was revoked", "ask for a new one"),
    3: ("there is no list of revoked certificates of its CA", "put that list into ssl_crlfile"),
    12: ("the list of revoked certificates has expired", "put a new one into ssl_crlfile"),
    62: (
        "its certificate is for another name",
        "connect to, and advertise, a name that is in the certificate",
    ),
    64: (
        "its certificate is for another address",
        "connect to, and advertise, a name or address that is in the certificate",
    ),
}
"""OpenSSL's verification codes."""

_NOT_TLS = (
    "it does not speak TLS",
    "check the port, and security_protocol, which is PLAINTEXT or SASL_PLAINTEXT for such a listener",
)
_NO_CERTIFICATE = (
    "it wants a certificate of ours and has got none",
    "set ssl_certfile and ssl_keyfile",
)
_REFUSED_CERTIFICATE = (
    "it does not accept our certificate",
    "use one, in ssl_certfile, that is valid and signed by a CA that the other side trusts",
)
_BAD_CERTIFICATE = (
    "it does not accept our certificate, or wants one and has got none",
    "set ssl_certfile to one that is valid and signed by a CA that the other side trusts",
)
_NO_COMMON = (
    "there is no TLS version and cipher that both sides allow",
    "allow TLS 1.2 or 1.3 there, and look at ssl_ciphers here",
)
_REASONS = {
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "HTTP_REQUEST": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "PACKET_LENGTH": _NOT_TLS,
    "CERTIFICATE_REQUIRED": _NO_CERTIFICATE,
    "DID_NOT_RETURN_A_CERTIFICATE": _NO_CERTIFICATE,
    "ALERT_BAD_CERTIFICATE": _BAD_CERTIFICATE,
    "ALERT_CERTIFICATE": _REFUSED_CERTIFICATE,
    "ALERT_UNKNOWN_CA": _REFUSED_CERTIFICATE,
    "ALERT_UNSUPPORTED_CERTIFICATE": _REFUSED_CERTIFICATE,
    "ALERT_ACCESS_DENIED": _REFUSED_CERTIFICATE,
    "ALERT_DECRYPT_ERROR": _REFUSED_CERTIFICATE,
    "UNSUPPORTED_PROTOCOL": _NO_COMMON,
    "PROTOCOL_VERSION": _NO_COMMON,
    "HANDSHAKE_FAILURE": _NO_COMMON,
    "NO_SHARED_CIPHER": _NO_COMMON,
    "UNRECOGNIZED_NAME": ("it does not know the name it is called by", "connect to a name of its own"),
}
"""Parts of OpenSSL's reasons."""


def explained(error: BaseException, peer: str, *, is_open: bool = False) -> KafkaError:
    """An error of ours for one of TLS.

    Args:
        error: what OpenSSL or the stream below raised.
        peer: the other end, as ``host:port``.
        is_open: the handshake was over; what then is not about trust may pass when tried again.

    Returns:
        SslAuthenticationError: the two do not trust or understand each other.
        WrongListenerError: the other end does not speak TLS.
        KafkaConnectionError: the connection was lost.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        cause, remedy = _CERTIFICATE.get(error.verify_code, (error.verify_message, "look at both ends"))
        return SslAuthenticationError(f"no TLS with {peer}: {cause}; {remedy} ({_detail(error)})")
    if not isinstance(error, ssl.SSLError) or _is_end(error):
        when = "" if is_open else " during the TLS handshake; perhaps this listener does not speak TLS"
        return KafkaConnectionError(f"{peer} closed the connection{when}{_because(error)}")
    reason = error.reason or ""
    for part, (cause, remedy) in _REASONS.items():
        if part in reason:
            if (cause, remedy) == _NOT_TLS and not is_open:
                return not_tls(peer, _detail(error))
            return SslAuthenticationError(f"no TLS with {peer}: {cause}; {remedy} ({_detail(error)})")
    if is_open:
        return KafkaConnectionError(f"TLS with {peer} broke: {_detail(error)}")
    return SslAuthenticationError(f"no TLS with {peer}: {_detail(error)}")


def not_tls(peer: str, detail: str) -> WrongListenerError:
    """The error for a listener that speaks something, but not TLS."""
    cause, remedy = _NOT_TLS
    return WrongListenerError(f"no TLS with {peer}: {cause}; {remedy} ({detail})")


def _is_end(error: ssl.SSLError) -> bool:
    kinds = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return isinstance(error, kinds) or "UNEXPECTED_EOF" in (error.reason or "")


def _because(error: BaseException) -> str:
    cause = error if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else error.__cause__
    return f" ({cause})" if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) else ""


def _detail(error: ssl.SSLError) -> str:
    """OpenSSL's own words, for a search, without its file names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    return (error.reason or error.strerror or type(error).__name__).replace("_", " ").lower()
