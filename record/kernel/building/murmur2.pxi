"""The hash of Kafka's default partitioner."""


def murmur2(data):
    """See ``murmur2.murmur2``."""
    if type(data) is not bytes:
        data = as_bytes(data, "key")
    if PyBytes_GET_SIZE(data) > MAX_KEY_BYTES:
        raise IllegalArgumentError(f"a key of {PyBytes_GET_SIZE(data)} bytes; at most {MAX_KEY_BYTES}")
    return <int>hash_of(<const uint8_t *>PyBytes_AS_STRING(data), <uint32_t>PyBytes_GET_SIZE(data))


cdef uint32_t hash_of(const uint8_t *at, uint32_t length) noexcept nogil:
    """Hash a key of at most 2 GiB."""
    cdef uint32_t left = length
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ length
    cdef uint32_t word
    while left >= 4:
        word = at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word *= <uint32_t>0x5BD1E995
        word ^= word >> 24
        word *= <uint32_t>0x5BD1E995
        hashed = hashed * <uint32_t>0x5BD1E995 ^ word
        at += 4
        left -= 4
    if left:
        if left == 3:
            hashed ^= <uint32_t>at[2] << 16
        if left >= 2:
            hashed ^= <uint32_t>at[1] << 8
        hashed = (hashed ^ at[0]) * <uint32_t>0x5BD1E995
    hashed = (hashed ^ hashed >> 13) * <uint32_t>0x5BD1E995
    hashed ^= hashed >> 15
    return hashed
