"""HTTP without any interface: connections, admission, bodies, streams, errors, logs, metrics."""
