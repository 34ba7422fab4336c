"""The Kafka protocol, sans-I/O: messages, headers, framing.

Message declarations (one file per API key), the compiler that turns them into codecs on first use, headers
and framing. Bytes in, values out; no socket, no clock. May import: model.
"""
