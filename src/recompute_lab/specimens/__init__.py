"""What fails: small faulty segments, and their repairs."""
