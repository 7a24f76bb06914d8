"""The page in a real Chromium, from loading to a streamed answer."""
