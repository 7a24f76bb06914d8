"""CUDA's libraries and the checked calls through ctypes, for tests and benchmarks of operations."""
