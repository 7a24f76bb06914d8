"""Open-loop load: requests that arrive when they are due, whatever the answers do."""
