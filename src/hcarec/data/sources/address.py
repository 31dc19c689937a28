"""Decide which servers may be spoken to, and connect to the very address that was checked."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from hcarec.errors import DownloadError

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: Address) -> bool:
    """Say whether an address belongs to the public internet, looking through IPv4 wrapped in IPv6."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if (inner := address.ipv4_mapped or address.sixtofour) is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local:
            return False
    special = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
    return address.is_global and not (special or address.is_reserved or address.is_unspecified)


def addresses_of(host: str, port: int) -> list[str]:
    """Resolve a name to its addresses."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Policy:
    """Whom the downloader may speak to; tests put their own server behind it, the checks stay the same."""

    hosts: frozenset[str]
    """Names of servers, exact."""
    port: int = 443
    """The one port."""
    permits: Callable[[Address], bool] = is_public
    """Whether an address may be connected to."""
    resolve: Callable[[str, int], list[str]] = addresses_of
    """Finds the addresses of a name."""
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    """Makes the settings of the encrypted connection."""
    redirects: int = 3
    """Most redirects that are followed."""
    timeout: float = 20.0
    """Seconds without an answer after which a server counts as silent."""
    seconds: float = 3600.0
    """Seconds that one file may take in all."""


def check_url(url: str, policy: Policy) -> tuple[str, str]:
    """Return host and path of an address that may be asked, or fail."""
    try:
        parts = urlsplit(url)
        port = parts.port or 443
    except ValueError:
        raise DownloadError(f"'{url[:200]}' is not a web address") from None
    if parts.scheme != "https":
        raise DownloadError(f"'{url[:200]}' is not https: refused")
    if parts.username or parts.password:
        raise DownloadError(f"'{parts.hostname}' is given with a user name: refused")
    if parts.hostname not in policy.hosts:
        raise DownloadError(f"the server '{parts.hostname}' is not among those of the known data sets: refused")
    if port != policy.port:
        raise DownloadError(f"port {port} of '{parts.hostname}' is not {policy.port}: refused")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if any(ord(letter) <= 32 or ord(letter) > 126 for letter in path):
        raise DownloadError(f"the address on '{parts.hostname}' holds characters that do not belong there: refused")
    return parts.hostname, path


def connect(host: str, policy: Policy) -> ssl.SSLSocket:
    """Connect to a host, every address of which is checked first; the name is resolved once, so it cannot change in between."""
    try:
        found = policy.resolve(host, policy.port)
    except OSError as error:
        raise DownloadError(f"the server '{host}' is not found ({error.strerror or error})") from None
    for text in found:
        if not policy.permits(ipaddress.ip_address(text.partition("%")[0])):
            raise DownloadError(f"the server '{host}' leads to {text}, a private or special address: refused")
    problem = "it has no address"
    for text in found:
        plain: socket.socket | None = None
        try:
            plain = socket.create_connection((text, policy.port), timeout=policy.timeout)
            return policy.tls().wrap_socket(plain, server_hostname=host)
        except OSError as error:  # ssl.SSLError is one
            problem = str(error.strerror or error)
            if plain is not None:
                plain.close()
    raise DownloadError(f"no connection to '{host}' ({problem[:120]})")
