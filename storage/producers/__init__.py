"""Producer state of a log (Kafka's ProducerStateManager): in memory, in snapshots, and rebuilt from batches.

May import: directories, files, segments, transaction_marker.
"""
