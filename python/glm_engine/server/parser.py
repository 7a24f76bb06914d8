"""From bytes to requests of HTTP/1."""

from httptools import HttpParserUpgrade, HttpRequestParser


class PlainParser(HttpRequestParser):
    """Reads every request as HTTP/1, whatever it asks to upgrade to (RFC 9110, 7.8).

    llhttp leaves off after the headers of such a request; they are read again without `Upgrade`,
    and after them the body.
    """

    def __init__(self, connection):
        self.connection = connection
        self.begin()

    def begin(self):
        """Expect the first byte of a request, whatever was read before."""
        super().__init__(self.connection)
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data):
        rest = memoryview(data)
        while rest:
            try:
                super().feed_data(rest)
                return
            except HttpParserUpgrade as left_off:
                if not self.asks_for_upgrade():
                    raise
                (num_read,) = left_off.args
            head = self.plain_head()
            self.begin()
            super().feed_data(head)
            rest = rest[num_read:]

    def asks_for_upgrade(self):
        """Say whether `Upgrade` is why the request has no body here, and not CONNECT."""
        return self.should_upgrade() and self.get_method() != b"CONNECT"

    def plain_head(self):
        """Return the headers that were read last, without `Upgrade`."""
        version = self.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.get_method(), self.connection.url, version)]
        headers = self.connection.headers
        lines += [b"%s: %s" % header for header in headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
