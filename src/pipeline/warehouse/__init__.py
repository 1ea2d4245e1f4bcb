"""The warehouse: parquet in, DuckDB, claims, summary and report out."""
