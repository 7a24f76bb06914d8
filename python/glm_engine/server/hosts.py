"""By which names the server may be asked: a page elsewhere must not reach it by a name of its own.

Who owns a domain can let it stand for 127.0.0.1, and a browser then takes answers of a server on
the loopback for that page's own (DNS rebinding). An address in `Host` cannot be had that way.
"""

import re
import socket
from ipaddress import ip_address

from glm_engine.server.errors import ApiError

LOOPBACK = "localhost"
ANY = "*"
HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:]*))(?::[0-9]*)?")


def is_address(name):
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host):
    """Say whether a name or an address can be reached from this machine alone."""
    found = socket.getaddrinfo(host, None)
    return all(ip_address(address[0]).is_loopback for *_, address in found)


def name_of(host):
    """Return the name or address of a Host header, without its port; "" where it is no host."""
    found = HOST.fullmatch(host)
    return (found[1] or found[2] or "").removesuffix(".").lower() if found else ""


class Hosts:
    """The names that are taken; all of them where the server is open to a network or has keys."""

    def __init__(self, settings, has_keys):
        named = {name.lower() for name in settings.allowed_hosts}
        is_private = is_loopback(settings.host) and not has_keys
        self.names = {*named, settings.host, LOOPBACK} if named or is_private else {ANY}

    def check(self, headers):
        """Raise ApiError 403 for a Host that is no address and not among the names, 400 for two."""
        hosts = [value.decode("latin-1") for field, value in headers if field == b"host"]
        if len(hosts) > 1:
            message = f"expected one Host header, got {len(hosts)}"
            raise ApiError(400, message, code="invalid_http")
        if ANY in self.names:
            return
        for host in hosts:
            name = name_of(host)
            if name not in self.names and not is_address(name):
                message = f"the Host header {host!r} is not allowed; allow it with --allowed-host"
                raise ApiError(403, message, code="host_not_allowed")
