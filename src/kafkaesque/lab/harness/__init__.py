"""What benchmarks and fault runs share: processes under test, clusters of brokers, and readings of them."""
