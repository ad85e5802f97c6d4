"""One file per family of anomalies; each check takes observations and yields anomalies. No I/O."""
