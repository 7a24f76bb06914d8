"""compute-sanitizer over every kernel of the CUDA library."""
