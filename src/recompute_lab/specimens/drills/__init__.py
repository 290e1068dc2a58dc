"""Twelve faulty training steps, one a file: each a `Model` (see `specimens.steps`) whose segment is a method of it."""
