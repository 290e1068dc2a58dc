"""What shows: figures (matplotlib) and interactive panels (ipywidgets)."""
