"""What shows: figures (matplotlib) and interactive panels (ipywidgets)."""

from recompute_lab.instruments.interrupts import uninterrupted

with uninterrupted():  # half imported, matplotlib fails until the process ends
    import matplotlib.backends.backend_agg
    import matplotlib.figure  # noqa: F401
