"""What shows: figures (matplotlib) and panels (ipywidgets)."""
