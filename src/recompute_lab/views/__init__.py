"""What shows: figures (matplotlib)."""
