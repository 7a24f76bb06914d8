"""The C headers of native/include/glm through ctypes, for tests and operations' benchmarks."""
