"""Measures prefill and decode of an engine through its own loop, beside the memory's floor."""
