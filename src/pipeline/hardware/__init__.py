"""Hardware: specs, what is measured, and constants fitted to it."""
