"""Which IP addresses a download may connect to: those of the public internet, and what the operator allows on top."""

from __future__ import annotations

import functools
import ipaddress

from slipstream.jobs.errors import InvalidJobs

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ANSWERS_KEPT = 4096


class Addresses:
    """What may be reached, and what may not.

    Example:
        addresses = Addresses("10.1.0.0/16, fd00:1::/32")
        addresses.refusal("10.2.0.1")  # "10.2.0.1 is private"
        addresses.refusal("10.1.0.1")  # None: go ahead
    """

    def __init__(self, allow_networks: str = "") -> None:
        self._allowed = parse_networks(allow_networks)
        # A URL with a literal address is judged at each request, and the same few come again and again.
        self.refusal = functools.lru_cache(ANSWERS_KEPT)(self._refusal)
        """Why this address may not be reached, or None where it may."""

    def _refusal(self, text: str) -> str | None:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return f"{text!r} is no IP address"
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            return f"{address} has a zone: it is of a link of this machine, not of the internet"
        if self._is_allowed(address):
            return None
        why = self._why_not_public(address)
        return f"{address} is {why}" if why else None

    def _is_allowed(self, address: Address) -> bool:
        return any(address in network for network in self._allowed)

    def _why_not_public(self, address: Address) -> str | None:
        if isinstance(address, ipaddress.IPv4Address):
            return _why_not_public_4(address)
        if address in MAPPED:
            # To the kernel this is the IPv4 address and nothing else: whatever is said about that, holds.
            inner = _last_four_bytes(address)
            return None if self._is_allowed(inner) else _why_not_public_4(inner, "inside IPv6")
        if address in TRANSLATED:
            # What DNS64 answers for every IPv4 host, in a network that has IPv6 only: it cannot be refused altogether.
            return _why_not_public_4(_last_four_bytes(address), "inside IPv6")
        return _why_not_public_6(address)


def parse_networks(text: str) -> tuple[Network, ...]:
    """The networks of JOBS_ALLOW_NETWORKS. Raises InvalidJobs."""
    networks: list[Network] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise InvalidJobs(
                f"JOBS_ALLOW_NETWORKS: {part!r} is no network ({error}); write it such as 10.1.0.0/16 or fd00::/8"
            ) from error
    return tuple(networks)


# Tables of our own: what `is_global` says differs between patch releases of Python. Both are asked, and one no is a no.

NOT_PUBLIC_4: tuple[tuple[ipaddress.IPv4Network, str], ...] = tuple(
    (ipaddress.IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/8", "of this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared behind a carrier's NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "inside a cloud"),  # Azure's own services for a machine, though it looks public
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)

PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
"""All that was ever given out. Loopback, local, multicast and IPv4-compatible addresses are outside."""

NOT_PUBLIC_6: tuple[tuple[ipaddress.IPv6Network, str], ...] = tuple(
    (ipaddress.IPv6Network(network), why)
    for network, why in (
        ("2001::/32", "a Teredo tunnel"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "a 6to4 tunnel"),
        ("3fff::/20", "for documentation"),
    )
)

LOCAL_6: tuple[tuple[ipaddress.IPv6Network, str], ...] = tuple(
    (ipaddress.IPv6Network(network), why)
    for network, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "an IPv4 address inside IPv6"),
        ("64:ff9b:1::/48", "for translation within a network"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
"""For the sake of the message only: these are not in PUBLIC_6 anyway."""

MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
ISATAP = (0x00005EFE, 0x02005EFE)


def _why_not_public_4(address: ipaddress.IPv4Address, where: str = "") -> str | None:
    for network, why in NOT_PUBLIC_4:
        if address in network:
            return f"{why}, {address} {where}" if where else why
    return None if address.is_global else "not public"


def _why_not_public_6(address: ipaddress.IPv6Address) -> str | None:
    if address not in PUBLIC_6:
        return next((why for network, why in LOCAL_6 if address in network), "not public")
    for network, why in NOT_PUBLIC_6:
        if address in network:
            return why
    if int(address) >> 32 & 0xFFFFFFFF in ISATAP and _why_not_public_4(_last_four_bytes(address)):
        return "an ISATAP tunnel to an address that is not public"
    return None if address.is_global else "not public"


def _last_four_bytes(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
