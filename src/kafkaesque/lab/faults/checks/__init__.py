"""One file a family of anomalies; each check takes observations and yields what it finds. No I/O."""
