"""The figures of one GPU: a page of docs/benchmarks and sections of READMEs, from JSON files."""
