"""What mends: repairs for any segment, each small enough to copy. torch and the standard library alone."""
