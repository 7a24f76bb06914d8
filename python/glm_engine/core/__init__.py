"""What every room uses: the engine, its C ABI, errors, files and the console."""
