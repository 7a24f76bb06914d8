"""Anthropic's Messages endpoints on the same engine."""
