"""What an error of the HTTP client means for a task: whose fault it is, and whether trying again makes sense."""

from __future__ import annotations

import ssl

import aiohttp
from aiohttp import http_exceptions
from yarl import URL

from slipstream.jobs.download.target import shown
from slipstream.jobs.failure import Code, TaskFailed


def failure_of(error: Exception, target: URL, proxy: URL | None = None) -> TaskFailed:
    """In words of our own: those of the client may hold a whole URL, with whatever secrets are in it."""
    where = shown(target)
    match error:
        case aiohttp.ClientProxyConnectionError():
            return _again(Code.DOWNLOAD_PROXY, f"{where}: {_via(proxy)} cannot be reached: {_cause(error)}")
        case aiohttp.ClientHttpProxyError():
            return _again(Code.DOWNLOAD_PROXY, f"{where}: {_via(proxy)} answered {error.status} to CONNECT")
        case aiohttp.ClientConnectorCertificateError():
            return TaskFailed(Code.DOWNLOAD_TLS, f"{where}: {_certificate(error)}")
        case aiohttp.ClientConnectorSSLError():
            return _again(Code.DOWNLOAD_TLS, f"{where}: no TLS connection came about: {_cause(error)}")
        case aiohttp.ClientConnectorDNSError():  # ours raises TaskFailed: this is that of the proxies
            return _again(Code.DOWNLOAD_PROXY, f"{where}: the name of {_via(proxy)} cannot be resolved")
        case aiohttp.ConnectionTimeoutError():
            code, who = (Code.DOWNLOAD_PROXY, _via(proxy)) if proxy else (Code.DOWNLOAD_TIMEOUT, "the server")
            return _again(code, f"{where}: {who} was not reached in time (JOBS_CONNECT_TIMEOUT_MS)")
        case aiohttp.ServerTimeoutError():
            return _again(Code.DOWNLOAD_TIMEOUT, f"{where}: nothing came for too long (JOBS_READ_TIMEOUT_MS)")
        case aiohttp.ClientConnectorError():
            return _again(Code.DOWNLOAD_CONNECT, f"{where}: no connection: {_cause(error)}")
        case aiohttp.ClientPayloadError() if _is_nonsense(error):
            return _again(Code.DOWNLOAD_PROTOCOL, f"{where}: the body is not what HTTP allows")
        case aiohttp.ClientPayloadError():
            return _again(Code.DOWNLOAD_RESET, f"{where}: the connection ended before the body did")
        case aiohttp.ClientConnectionError() | ConnectionError():
            return _again(Code.DOWNLOAD_RESET, f"{where}: the connection was lost before there was an answer")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return TaskFailed(Code.DOWNLOAD_INVALID_URL, f"{where}: this is no URL that can be asked for")
        case aiohttp.ClientResponseError():
            return _again(Code.DOWNLOAD_PROTOCOL, f"{where}: the answer is not what HTTP allows")
        case OSError():
            return _again(Code.DOWNLOAD_CONNECT, f"{where}: {error.strerror or type(error).__name__}")
    return _again(Code.DOWNLOAD_PROTOCOL, f"{where}: {type(error).__name__}")


def shown_proxy(proxy: URL | None) -> str:
    """Without its password."""
    return f"{proxy.host_subcomponent}:{proxy.port}" if proxy is not None else "?"


def _again(code: Code, message: str) -> TaskFailed:
    return TaskFailed(code, message, is_retryable=True)


def _via(proxy: URL | None) -> str:
    return f"the proxy {shown_proxy(proxy)}"


def _cause(error: aiohttp.ClientConnectorError) -> str:
    cause = error.os_error
    if isinstance(cause, ssl.SSLError):
        return cause.reason or "TLS failed"
    return cause.strerror or type(cause).__name__


def _certificate(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    reason = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
    return f"its certificate cannot be trusted: {reason}"


def _is_nonsense(error: aiohttp.ClientPayloadError) -> bool:
    """As opposed to cut off: an error of the parser is the cause, and not that the end was missing."""
    cause = error.__cause__
    return isinstance(cause, http_exceptions.TransferEncodingError) and "Not enough data" not in str(cause)
