"""What measures: instruments that take any segment, a callable or an nn.Module with its arguments."""
