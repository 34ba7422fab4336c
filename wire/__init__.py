"""The Kafka protocol, sans-IO: messages, headers, framing.

Lives here: message declarations (one file per API key), the compiler that turns them into codecs on first
use, primitives and framing. Bytes in, values out; no socket, no clock.
May import: model.
"""
