"""By which names the server may be asked: a page elsewhere must not reach it by a name of its own.

Who owns a domain can let it stand for 127.0.0.1, and a browser then takes answers of a server on
the loopback for that page's own (DNS rebinding). An address in `Host` cannot be had that way.
"""

from ipaddress import ip_address

from glm_engine.server.errors import ApiError

LOOPBACK = "localhost"
ANY = "*"


def is_address(name):
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host):
    return host == LOOPBACK or (is_address(host) and ip_address(host).is_loopback)


def name_of(host):
    """Return the name or address of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


class Hosts:
    """The names that are taken; all of them where the server is open to a network or has keys."""

    def __init__(self, settings, has_keys):
        named = {name.lower() for name in settings.allowed_hosts}
        is_private = is_loopback(settings.host) and not has_keys
        self.names = {*named, settings.host, LOOPBACK} if named or is_private else {ANY}

    def check(self, headers):
        """Raise ApiError 403 for a Host that is no address and not among the names."""
        if ANY in self.names:
            return
        for field, value in headers:
            if field == b"host":
                name = name_of(value.decode("latin-1"))
                if name not in self.names and not is_address(name):
                    message = f"the host {name!r} is not served here; --allowed-host adds one"
                    raise ApiError(403, message, code="host_not_allowed")
