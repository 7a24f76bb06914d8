"""Throughput through `glm serve` beside the engine's own, on the same requests."""
