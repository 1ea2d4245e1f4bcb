"""Request traces: one reader per format, generators, and the one type they all return."""
