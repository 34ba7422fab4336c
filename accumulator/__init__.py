"""Records waiting to be sent: batches per TopicPartition, the memory budget, readiness.

Lives here: the RecordAccumulator and its ProducerBatch. Pure decisions: no I/O, no clock, no lock.
May import: model, record.
"""
