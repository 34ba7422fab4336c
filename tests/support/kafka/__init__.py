"""A real Kafka, what it writes and answers, and the questions that compare it with ours."""
