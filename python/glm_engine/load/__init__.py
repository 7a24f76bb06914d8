"""Open-loop load: requests are sent when they are due and never wait for earlier answers."""
