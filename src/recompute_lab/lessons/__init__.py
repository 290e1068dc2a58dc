"""What teaches: each lesson's exercises, their checks and hints."""
