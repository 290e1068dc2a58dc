"""Forward, Twice: what activation checkpointing does behind a training run's back."""

__version__ = "0.1.0"
