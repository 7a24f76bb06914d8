"""Which Host a server takes, by where it listens, its keys and its options."""

import pytest

from glm_engine.server.http.admission import AllowedHosts
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.server_settings import Settings
from tests.server.raw import connect, read_until
from tests.server.serving import QUESTION

LOOPBACK = ["localhost", "localhost:8000", "LocalHost.", "127.0.0.1:80", "[::1]:8000", "10.1.2.3"]
OTHERS = ["elsewhere.org", "elsewhere.org:8000", "localhost.elsewhere.org", "127.0.0.1.nip.io", ""]
DISGUISED = [
    "[::1].elsewhere.org",
    "[::1]elsewhere.org:8000",
    "[::1",
    "127.0.0.1:80.elsewhere.org",
    "localhost:elsewhere.org",
    "localhost..",
]


def takes(settings, host, has_keys=False):
    try:
        AllowedHosts(settings, has_keys).check([(b"accept", b"*/*"), (b"host", host.encode())])
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3", "127.1"])
def test_on_the_loopback_without_keys_only_its_own_names(host) -> None:
    settings = Settings(host=host)
    assert [name for name in LOOPBACK if not takes(settings, name)] == []
    assert [name for name in OTHERS + DISGUISED if takes(settings, name)] == []


def test_with_keys_or_on_a_network_any_name() -> None:
    assert all(takes(Settings(), name, has_keys=True) for name in OTHERS)
    assert all(takes(Settings(host="0.0.0.0"), name) for name in OTHERS)
    assert all(takes(Settings(allowed_hosts=("*",)), name) for name in OTHERS)


def test_names_that_were_allowed() -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        settings = Settings(host=host, allowed_hosts=("Elsewhere.org", "other"))
        assert takes(settings, "elsewhere.ORG:8000")
        assert takes(settings, "other")
        assert takes(settings, "localhost")
        assert not takes(settings, "third.org", has_keys=True)


@pytest.mark.parametrize("settings", [Settings(), Settings(allowed_hosts=("*",))])
def test_two_hosts_are_refused_and_none_is_taken(settings) -> None:
    hosts = AllowedHosts(settings, has_keys=False)
    hosts.check([])
    for second in (b"elsewhere.org", b"localhost"):
        with pytest.raises(ApiError) as caught:
            hosts.check([(b"host", b"localhost"), (b"host", second)])
        assert (caught.value.status_code, caught.value.code) == (400, "invalid_http")


@pytest.mark.parametrize("path", ["/", "/gauges", "/v1/models", "/v1/completions", "/nothing"])
def test_the_server_refuses_a_name_of_others_everywhere(server, path) -> None:
    answer = server.http.get(path, headers={"host": "elsewhere.org"})
    assert answer.status_code == 403
    assert "--allowed-host" in answer.json()["error"]["message"]


def test_the_option_can_be_repeated(start_server) -> None:
    server = start_server("--allowed-host", "one.org", "--allowed-host", "two.org")
    fields = {"prompt": QUESTION, "max_tokens": 1}
    for host, status in (("one.org", 200), ("two.org:80", 200), ("three.org", 403)):
        answer = server.http.post("/v1/completions", json=fields, headers={"host": host})
        assert answer.status_code == status
    with connect(server) as connection:
        connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert read_until(connection, b"ready").startswith(b"HTTP/1.1 200 ")
