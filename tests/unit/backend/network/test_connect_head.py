"""One form of CONNECT is read, and everything that two readers could read differently is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.network.attempts import Decision, Refused
from backend.network.connect_head import MAX_HEAD, read_connect, read_status
from images.config import NetworkPeer
from tests.attacks import Position, attack

LISTED = NetworkPeer("api.example.com", 443)
AS_CLIENTS_WRITE_IT = {
    "curl": b"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n"
    b"User-Agent: curl/7.88.1\r\nProxy-Connection: Keep-Alive\r\n\r\n",
    "undici": b"CONNECT api.example.com:443 HTTP/1.1\r\nhost: api.example.com\r\nconnection: close\r\n\r\n",
    "no field": b"CONNECT api.example.com:443 HTTP/1.1\r\n\r\n",
    "HTTP/1.0": b"CONNECT api.example.com:443 HTTP/1.0\r\n\r\n",
    "capitals": b"CONNECT API.Example.COM:443 HTTP/1.1\r\nHost: Api.example.com\r\n\r\n",
    "an empty body": b"CONNECT api.example.com:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "a login of its own": b"CONNECT api.example.com:443 HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\n\r\n",
}


@pytest.mark.parametrize("raw", AS_CLIENTS_WRITE_IT.values(), ids=AS_CLIENTS_WRITE_IT)
def test_what_clients_write_is_read(raw: bytes) -> None:
    assert read_connect(raw) == LISTED


def test_addresses_are_read_as_they_stand() -> None:
    assert read_connect(b"CONNECT [2606:4700::1111]:443 HTTP/1.1\r\n\r\n") == NetworkPeer(
        "2606:4700::1111", 443
    )
    assert read_connect(b"CONNECT 1.1.1.1:853 HTTP/1.1\r\n\r\n") == NetworkPeer("1.1.1.1", 853)


def head(target: bytes = b"api.example.com:443", fields: bytes = b"", version: bytes = b"HTTP/1.1") -> bytes:
    return b"CONNECT " + target + b" " + version + b"\r\n" + fields + b"\r\n"


SMUGGLED = {
    "bare LF": b"CONNECT api.example.com:443 HTTP/1.1\n\n",
    "LF in a field": head(fields=b"X: a\nHost: evil.example\r\n"),
    "CR in a field": head(fields=b"X: a\rY: b\r\n"),
    "CRLF in the target": head(b"api.example.com:443\r\nX:"),
    "NUL in the target": head(b"api.example.com\0.evil.example:443"),
    "blank in the target": head(b"api.example.com:443 evil.example:443"),
    "tab instead of a blank": b"CONNECT\tapi.example.com:443 HTTP/1.1\r\n\r\n",
    "two blanks": b"CONNECT  api.example.com:443 HTTP/1.1\r\n\r\n",
    "a blank before": b" CONNECT api.example.com:443 HTTP/1.1\r\n\r\n",
    "an empty line before": b"\r\nCONNECT api.example.com:443 HTTP/1.1\r\n\r\n",
    "absolute form": head(b"https://api.example.com:443/"),
    "absolute form without a path": head(b"http://api.example.com:443"),
    "origin form": head(b"/"),
    "asterisk": head(b"*"),
    "userinfo": head(b"api.example.com:443@evil.example:443"),
    "userinfo before": head(b"user:word@api.example.com:443"),
    "fragment": head(b"api.example.com:443#evil.example"),
    "query": head(b"api.example.com:443?evil.example"),
    "path": head(b"api.example.com:443/evil"),
    "backslash": head(b"evil.example\\api.example.com:443"),
    "percent": head(b"api%2eexample%2ecom:443"),
    "trailing dot": head(b"api.example.com.:443"),
    "leading dot": head(b".api.example.com:443"),
    "two dots": head(b"api..example.com:443"),
    "underscore": head(b"api_.example.com:443"),
    "letters beyond ASCII": head("äpi.example.com:443".encode()),
    "full-width dot": head("api\uff0eexample\uff0ecom:443".encode()),
    "no port": head(b"api.example.com"),
    "empty port": head(b"api.example.com:"),
    "port 0": head(b"api.example.com:0"),
    "port with a sign": head(b"api.example.com:+443"),
    "port with a zero before": head(b"api.example.com:0443"),
    "port too large": head(b"api.example.com:65979"),
    "no number": head(b"api.example.com:https"),
    "short IPv4": head(b"127.1:443"),
    "IPv4 as one number": head(b"2130706433:443"),
    "IPv4 in hexadecimal": head(b"0x7f000001:443"),
    "IPv4 in octal": head(b"0177.0.0.1:443"),
    "IPv4 ends in hexadecimal": head(b"127.0.0.0x1:443"),
    "mapped IPv4": head(b"[::ffff:127.0.0.1]:443"),
    "mapped IPv4 in hexadecimal": head(b"[::ffff:7f00:1]:443"),
    "IPv6 with a scope": head(b"[fe80::1%25eth0]:443"),
    "IPv6 in another spelling": head(b"[2606:4700:0::1111]:443"),
    "IPv6 without brackets": head(b"2606:4700::1111:443"),
    "another host in Host": head(fields=b"Host: evil.example\r\n"),
    "another port in Host": head(fields=b"Host: api.example.com:80\r\n"),
    "Host twice": head(fields=b"Host: api.example.com\r\nHost: api.example.com\r\n"),
    "a body": head(fields=b"Content-Length: 5\r\n") + b"12345",
    "a body to come": head(fields=b"Content-Length: 5\r\n"),
    "two lengths": head(fields=b"Content-Length: 0\r\nContent-Length: 5\r\n"),
    "chunks": head(fields=b"Transfer-Encoding: chunked\r\n"),
    "a second request": head() + head(b"evil.example:443"),
    "a hello too early": head() + b"\x16\x03\x01",
    "folded field": head(fields=b"X: a\r\n Host: evil.example\r\n"),
    "blank before the colon": head(fields=b"Host : api.example.com\r\n"),
    "no colon": head(fields=b"Host\r\n"),
    "no name": head(fields=b": x\r\n"),
    "control in a value": head(fields=b"X: \x1b[2J\r\n"),
    "letters beyond ASCII in a value": head(fields=b"X: \xff\r\n"),
    "65 fields": head(fields=b"X: y\r\n" * 65),
    "HTTP/2": head(version=b"HTTP/2"),
    "HTTP/1.2": head(version=b"HTTP/1.2"),
    "HTTP/0.9": b"CONNECT api.example.com:443\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SOCKS": b"\x05\x01\x00\r\n\r\n",
    "nothing": b"\r\n\r\n",
    "no end": b"CONNECT api.example.com:443 HTTP/1.1\r\n",
}


@attack(by=Position.AGENT)
@pytest.mark.parametrize("raw", SMUGGLED.values(), ids=SMUGGLED)
def test_what_can_be_read_in_two_ways_is_refused(raw: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_connect(raw)
    assert refused.value.decision is Decision.MALFORMED


@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS", b"connect", b"CONNECTX"])
@pytest.mark.parametrize("target", [b"http://api.example.com/", b"/", b"api.example.com:443"])
def test_connect_is_the_only_method(method: bytes, target: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_connect(method + b" " + target + b" HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
    assert refused.value.decision is Decision.NOT_CONNECT


def test_a_head_has_an_end() -> None:
    field = b"X: " + b"a" * (MAX_HEAD - len(head()) - 5) + b"\r\n"
    assert read_connect(head(fields=field)) == LISTED
    with pytest.raises(Refused):
        read_connect(head(fields=b"a" + field))


def test_another_name_of_the_same_sound_is_another_peer() -> None:
    assert read_connect(head(b"xn--pi-uia.example.com:443")) == NetworkPeer("xn--pi-uia.example.com", 443)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        read_connect(raw + b"\r\n\r\n")


@given(st.binary(min_size=1, max_size=3), st.integers(0, 60))
def test_a_listed_head_with_bytes_put_in_never_becomes_another_host(put: bytes, at: int) -> None:
    raw = AS_CLIENTS_WRITE_IT["undici"]
    try:
        found = read_connect(raw[:at] + put + raw[at:])
    except Refused:
        return
    named = (
        raw[8 : raw.index(b":")]
        if at > raw.index(b" HTTP")
        else (raw[:at] + put + raw[at:])[8:].split(b":")[0]
    )
    assert found.host == named.decode("ascii").lower()


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.0 407 Proxy \xfcber\r\nX: y\r\n\r\n", 407),
        (b"HTTP/1.1 200\r\n\r\n", 200),
        (b"HTTP/1.1 20 OK\r\n\r\n", None),
        (b"HTTP/1.1 2000 OK\r\n\r\n", None),
        (b"HTTP/2 200\r\n\r\n", None),
        (b"SSH-2.0-x\r\n\r\n", None),
        (b"", None),
    ],
)
def test_a_proxys_answer_has_a_status_or_is_none(raw: bytes, status: int | None) -> None:
    assert read_status(raw) == status
