"""Which addresses may be reached: the tables, the addresses inside others, and what the operator allows."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.jobs.download.addresses import NOT_PUBLIC_4, Addresses
from slipstream.jobs.errors import InvalidJobs

FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255",
    "::", "::1", "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fe80::1%1", "febf::1", "fec0::1", "ff02::1",
    "2001:db8::1", "3fff::1", "2001:2::1", "2001:10::1", "100::1", "5f00::1", "4000::1", "2606:4700::1%3",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::8.8.8.8",
    "2002:7f00:1::", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8", "2606:4700::5efe:10.0.0.1",
    "2606:4700::200:5efe:192.168.0.1",
]  # fmt: skip

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1",
    "198.17.255.255", "198.20.0.0", "223.255.255.254", "2606:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8", "2606:4700::5efe:8.8.8.8",
]  # fmt: skip


@pytest.mark.parametrize("address", FORBIDDEN)
def test_what_is_not_public_is_refused(address: str) -> None:
    assert Addresses().refusal(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_may_be_reached(address: str) -> None:
    assert Addresses().refusal(address) is None


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "127.0.0.1 ", "127.0.0.1."])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert Addresses().refusal(text)


def test_a_refusal_says_what_the_address_is() -> None:
    assert Addresses().refusal("10.1.2.3") == "10.1.2.3 is private"
    assert "loopback, 127.0.0.1 inside IPv6" in str(Addresses().refusal("::ffff:127.0.0.1"))


def test_networks_can_be_allowed() -> None:
    addresses = Addresses(" 10.1.0.0/16 ,fd00:1::/32,, 192.168.7.7")
    assert addresses.refusal("10.1.2.3") is None
    assert addresses.refusal("192.168.7.7") is None
    assert addresses.refusal("fd00:1::5") is None
    assert addresses.refusal("10.2.0.1")
    assert addresses.refusal("fd00:2::5")


def test_an_allowed_network_is_allowed_in_its_mapped_form_and_in_no_other() -> None:
    addresses = Addresses("10.1.0.0/16")
    assert addresses.refusal("::ffff:10.1.2.3") is None
    assert addresses.refusal("::ffff:10.2.2.3")
    assert addresses.refusal("::10.1.2.3")
    assert addresses.refusal("64:ff9b::10.1.2.3")


@pytest.mark.parametrize("text", ["10.0.0.0/33", "somewhere", "10.0.0.1/8", "10.0.0.0/8;127.0.0.0/8"])
def test_a_network_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidJobs, match="JOBS_ALLOW_NETWORKS"):
        Addresses(text)


@given(st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address))
def test_an_ipv4_address_is_judged_the_same_inside_ipv6(address: ipaddress.IPv4Address) -> None:
    addresses = Addresses()
    is_refused = addresses.refusal(str(address)) is not None
    assert is_refused or address.is_global
    for form in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert (addresses.refusal(form) is not None) == is_refused
    assert addresses.refusal(f"::{address}")


@given(st.sampled_from(NOT_PUBLIC_4), st.data())
def test_no_address_of_a_forbidden_network_gets_through(
    entry: tuple[ipaddress.IPv4Network, str], data: st.DataObject
) -> None:
    number = data.draw(st.integers(int(entry[0].network_address), int(entry[0].broadcast_address)))
    assert Addresses().refusal(str(ipaddress.IPv4Address(number)))


@given(st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address))
def test_nothing_gets_through_that_python_does_not_call_global(address: ipaddress.IPv6Address) -> None:
    if Addresses().refusal(str(address)) is None:
        assert (address.ipv4_mapped or address).is_global
