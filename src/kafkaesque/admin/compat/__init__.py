"""Which features a cluster uses, and whether another Kafka has them."""
