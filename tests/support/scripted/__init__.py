"""A Kafka cluster that follows a script: wrong, lost and late answers, at the request that a test names."""
