"""CRC-32C of the bytes just appended, while they are in the processor's cache.

It uses the processor's CRC instruction, which takes three cycles but can start in every cycle: so three parts are
summed at a time. A batch is checksummed in steps as it fills.
"""

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <stdint.h>
    #include <string.h>
    #define SPLASHDAM_CRC __attribute__((target("sse4.2")))
    static int crc_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
    static inline uint64_t crc_word(const uint8_t *at) { uint64_t word; memcpy(&word, at, 8); return word; }
    /* Three neighbouring parts of `part` bytes each; the instruction takes three cycles but starts in each. */
    SPLASHDAM_CRC static void crc_three(uint32_t states[3], const uint8_t *at, size_t part) {
        uint64_t a = states[0], b = states[1], c = states[2];
        for (size_t done = 0; done < part; done += 8, at += 8) {
            a = __builtin_ia32_crc32di(a, crc_word(at));
            b = __builtin_ia32_crc32di(b, crc_word(at + part));
            c = __builtin_ia32_crc32di(c, crc_word(at + 2 * part));
        }
        states[0] = (uint32_t)a, states[1] = (uint32_t)b, states[2] = (uint32_t)c;
    }
    SPLASHDAM_CRC static uint32_t crc_one(uint32_t state, const uint8_t *at, size_t size) {
        uint64_t wide = state;
        for (; size >= 8; size -= 8, at += 8) wide = __builtin_ia32_crc32di(wide, crc_word(at));
        for (state = (uint32_t)wide; size; size--) state = __builtin_ia32_crc32qi(state, *at++);
        return state;
    }
    #else
    static int crc_instruction(void) { return 0; }
    static void crc_three(uint32_t states[3], const uint8_t *at, size_t part) {}
    static uint32_t crc_one(uint32_t state, const uint8_t *at, size_t size) { return 0; }
    #endif
    """
    bint crc_instruction() nogil
    void crc_three(uint32_t *states, const uint8_t *at, size_t part) nogil
    uint32_t crc_one(uint32_t state, const uint8_t *at, size_t size) nogil

cdef enum:
    SUM_PART_BYTES = 2048
    SUM_STEP_BYTES = 3 * SUM_PART_BYTES
    SUM_POWERS = 36  # as many as a batch's size has bits
    CRC_FROM = 21  # batch.CRC_FROM

cdef uint32_t[SUM_POWERS] sum_powers  # x to the power of 2**n modulo the polynomial, highest bit first
cdef uint32_t[4][256] sum_shifts  # by byte of a checksum: its share after SUM_PART_BYTES more bytes
cdef bint can_sum = crc_instruction()


cdef uint32_t times(uint32_t left, uint32_t right) noexcept nogil:
    """Multiply two polynomials modulo that of CRC-32C."""
    cdef uint32_t product = 0
    while left:
        if left >> 31:
            product ^= right
        left <<= 1
        right = (right >> 1) ^ (<uint32_t>0x82F63B78 if right & 1 else 0)
    return product


cdef uint32_t shift_by(Py_ssize_t size) noexcept nogil:
    """Return the factor that moves a checksum ``size`` bytes further."""
    cdef uint32_t factor = <uint32_t>0x80000000
    cdef int power = 3  # 8 bits a byte
    while size:
        if size & 1:
            factor = times(factor, sum_powers[power])
        size >>= 1
        power += 1
    return factor


cdef void prepare_sums() noexcept nogil:
    cdef uint32_t factor
    cdef int number, value
    sum_powers[0] = <uint32_t>0x40000000
    for number in range(1, SUM_POWERS):
        sum_powers[number] = times(sum_powers[number - 1], sum_powers[number - 1])
    factor = shift_by(SUM_PART_BYTES)
    for number in range(4):
        for value in range(256):
            sum_shifts[number][value] = times(<uint32_t>value << (8 * number), factor)


prepare_sums()


cdef inline uint32_t part_further(uint32_t state) noexcept nogil:
    return (
        sum_shifts[0][state & 0xFF]
        ^ sum_shifts[1][state >> 8 & 0xFF]
        ^ sum_shifts[2][state >> 16 & 0xFF]
        ^ sum_shifts[3][state >> 24]
    )


cdef uint32_t sum_steps(uint32_t checksum, const uint8_t *at, Py_ssize_t steps) noexcept nogil:
    """Return the checksum after ``steps`` times ``SUM_STEP_BYTES`` more bytes."""
    cdef uint32_t[3] states
    cdef Py_ssize_t step
    states[0] = ~checksum
    for step in range(steps):
        states[1] = states[2] = 0
        crc_three(states, at + step * SUM_STEP_BYTES, SUM_PART_BYTES)
        states[0] = part_further(part_further(states[0]) ^ states[1]) ^ states[2]
    return ~states[0]


cdef uint32_t sum_rest(uint32_t checksum, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    """Return the checksum after ``size`` more bytes, without interleaving: for short pieces."""
    return ~crc_one(<uint32_t>~checksum, at, size)
