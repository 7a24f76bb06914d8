"""Each kernel of the CUDA device over a table of shapes, beside the library that does the same."""
