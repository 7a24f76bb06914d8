"""The acceptance figures of the CPU device, measured beside their limits: `scons bench`."""
