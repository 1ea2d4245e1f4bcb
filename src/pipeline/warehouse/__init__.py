"""The answer in SQL: one DuckDB file for all studies, its marts, checks and claims, a summary in words and a page."""
