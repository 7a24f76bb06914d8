"""Measures prefill and decode of an engine, beside the roofline of its memory."""
