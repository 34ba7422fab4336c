/* The common sink: a Kafka broker that accepts what any producer sends, counts it and throws it away.
 *
 * It answers ApiVersions 0-4, Metadata 0-7, InitProducerId 0-1 and Produce 3-11, the same to every client. Records
 * are counted from the batch headers; nothing is decompressed, checksummed or stored, so that the client
 * is what is measured. Prints its port, serves until stdin ends, then prints its counts.
 * sink.py is the same in Python, for machines without a compiler.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, METADATA = 3, FIND_COORDINATOR = 10, API_VERSIONS = 18, INIT_PRODUCER_ID = 22 };
enum { MAX_PEERS = 64, HEADER_BYTES = 61, NODE_ID = 1 };

/* Fetch and FindCoordinator are never served: librdkafka derives "message format 2" from their presence. */
static const int16_t APIS[][3] = {{PRODUCE, 3, 11},          {FETCH, 4, 11},     {METADATA, 0, 7},
                                  {FIND_COORDINATOR, 0, 2}, {API_VERSIONS, 0, 4}, {INIT_PRODUCER_ID, 0, 1}};
enum { API_COUNT = sizeof APIS / sizeof *APIS };

static uint64_t records, record_bytes, batches, requests, next_producer_id = 1000;
static int partitions = 4, port;

static void die(const char *why) {
    fprintf(stderr, "sink: %s\n", why);
    exit(1);
}

/* Reading: every get checks the end, so that a damaged frame ends the run instead of being counted. */
typedef struct { const uint8_t *at, *end; } Reader;

static const uint8_t *take(Reader *in, int64_t n) {
    if (n < 0 || n > in->end - in->at) die("truncated request");
    const uint8_t *start = in->at;
    in->at += n;
    return start;
}
static int64_t get(Reader *in, int width) {
    const uint8_t *p = take(in, width);
    uint64_t value = p[0] & 0x80 ? ~(uint64_t)0 : 0;
    for (int i = 0; i < width; i++) value = value << 8 | p[i];
    return (int64_t)value;
}
static uint32_t get_uvarint(Reader *in) {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint8_t byte = *take(in, 1);
        value |= (uint32_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
    die("varint too long");
    return 0;
}
/* A length or count: compact in flexible versions, else a fixed-width integer. -1 is null. */
static int64_t get_length(Reader *in, int flexible, int width) {
    return flexible ? (int64_t)get_uvarint(in) - 1 : get(in, width);
}
static void skip_tags(Reader *in) {
    for (uint32_t n = get_uvarint(in); n > 0; n--) {
        get_uvarint(in);
        take(in, get_uvarint(in));
    }
}

/* Writing, into one growing buffer of answers. */
typedef struct { uint8_t *data; size_t used, room; } Writer;

static uint8_t *grow(Writer *out, size_t n) {
    if (out->used + n > out->room) {
        out->room = (out->used + n) * 2;
        if (!(out->data = realloc(out->data, out->room))) die("out of memory");
    }
    out->used += n;
    return out->data + out->used - n;
}
static void put_at(uint8_t *p, int64_t value, int width) {
    for (int i = width - 1; i >= 0; i--, value >>= 8) p[i] = (uint8_t)value;
}
static void put(Writer *out, int64_t value, int width) { put_at(grow(out, width), value, width); }
static void put_uvarint(Writer *out, uint32_t value) {
    for (; value >= 0x80; value >>= 7) *grow(out, 1) = (uint8_t)(value | 0x80);
    *grow(out, 1) = (uint8_t)value;
}
static void put_length(Writer *out, int64_t n, int flexible, int width) {
    if (flexible) put_uvarint(out, (uint32_t)(n + 1));
    else put(out, n, width);
}
static void put_string(Writer *out, const void *text, int64_t n, int flexible) {
    put_length(out, n, flexible, 2);
    memcpy(grow(out, (size_t)n), text, (size_t)n);
}

static void answer_api_versions(Writer *out, int version) {
    int flexible = version >= 3;
    put(out, 0, 2);
    put_length(out, API_COUNT, flexible, 4);
    for (int i = 0; i < API_COUNT; i++) {
        for (int j = 0; j < 3; j++) put(out, APIS[i][j], 2);
        if (flexible) put_uvarint(out, 0);
    }
    if (version >= 1) put(out, 0, 4);
    if (flexible) put_uvarint(out, 0);
}

static void answer_metadata(Reader *in, Writer *out, int version) {
    if (version >= 3) put(out, 0, 4);
    put(out, 1, 4); /* one broker: this one */
    put(out, NODE_ID, 4);
    put_string(out, "127.0.0.1", 9, 0);
    put(out, port, 4);
    if (version >= 1) put(out, -1, 2);            /* rack */
    if (version >= 2) put_string(out, "sink", 4, 0); /* cluster id */
    if (version >= 1) put(out, NODE_ID, 4);       /* controller */
    int64_t topics = get(in, 4);
    put(out, topics < 0 ? 0 : topics, 4);
    for (; topics > 0; topics--) {
        int64_t length = get(in, 2);
        put(out, 0, 2);
        put_string(out, take(in, length), length, 0);
        if (version >= 1) put(out, 0, 1);
        put(out, partitions, 4);
        for (int i = 0; i < partitions; i++) {
            put(out, 0, 2);
            put(out, i, 4);
            put(out, NODE_ID, 4);
            if (version >= 7) put(out, 0, 4);
            for (int list = 0; list < 2; list++) { /* replicas, in sync */
                put(out, 1, 4);
                put(out, NODE_ID, 4);
            }
            if (version >= 5) put(out, 0, 4); /* offline */
        }
    }
}

static void answer_init_producer_id(Writer *out) {
    put(out, 0, 4);
    put(out, 0, 2);
    put(out, (int64_t)next_producer_id++, 8);
    put(out, 0, 2);
}

static void count_batches(Reader in) {
    while (in.at < in.end) {
        const uint8_t *head = take(&in, HEADER_BYTES);
        if (head[16] != 2) die("a batch that is not of format 2");
        Reader length = {head + 8, head + 12}, count = {head + 57, head + 61};
        take(&in, get(&length, 4) + 12 - HEADER_BYTES);
        records += (uint64_t)get(&count, 4);
        batches++;
    }
}

static void answer_partition(Reader *in, Writer *out, int version, int flexible) {
    put(out, get(in, 4), 4);
    int64_t length = get_length(in, flexible, 4);
    if (length < 0) die("null records");
    count_batches((Reader){in->at, in->at + length});
    record_bytes += (uint64_t)length;
    take(in, length);
    put(out, 0, 2);
    put(out, 0, 8);  /* base offset: nothing is stored, so every batch begins at 0 */
    put(out, -1, 8); /* log append time */
    if (version >= 5) put(out, 0, 8);
    if (version >= 8) {
        put_length(out, 0, flexible, 4);
        put_length(out, -1, flexible, 2);
    }
    if (flexible) skip_tags(in), put_uvarint(out, 0);
}

/* Returns acks: 0 means that no answer may be sent. */
static int answer_produce(Reader *in, Writer *out, int version) {
    int flexible = version >= 9;
    int64_t length = get_length(in, flexible, 2); /* transactional id */
    take(in, length < 0 ? 0 : length);
    int acks = (int)get(in, 2);
    take(in, 4); /* timeout */
    int64_t topics = get_length(in, flexible, 4);
    put_length(out, topics, flexible, 4);
    for (; topics > 0; topics--) {
        length = get_length(in, flexible, 2);
        put_string(out, take(in, length), length, flexible);
        int64_t count = get_length(in, flexible, 4);
        put_length(out, count, flexible, 4);
        for (; count > 0; count--) answer_partition(in, out, version, flexible);
        if (flexible) skip_tags(in), put_uvarint(out, 0);
    }
    put(out, 0, 4); /* throttle */
    if (flexible) put_uvarint(out, 0);
    requests++;
    return acks;
}

static void answer(Reader in, Writer *out) {
    size_t start = out->used;
    int key = (int)get(&in, 2), version = (int)get(&in, 2);
    int64_t correlation = get(&in, 4), client_id = get(&in, 2);
    take(&in, client_id < 0 ? 0 : client_id);
    int flexible = (key == PRODUCE && version >= 9) || (key == API_VERSIONS && version >= 3);
    if (flexible) skip_tags(&in);
    put(out, 0, 4); /* size, known at the end */
    put(out, correlation, 4);
    if (key == API_VERSIONS) answer_api_versions(out, version); /* its response header is never flexible */
    else if (key == METADATA) answer_metadata(&in, out, version);
    else if (key == INIT_PRODUCER_ID) answer_init_producer_id(out);
    else if (key == PRODUCE) {
        if (flexible) put_uvarint(out, 0);
        if (answer_produce(&in, out, version) == 0) { out->used = start; return; }
    } else die("a request that no producer sends");
    put_at(out->data + start, (int64_t)(out->used - start - 4), 4);
}

typedef struct { uint8_t *data; size_t used, room; } Inbox;

/* Reads what is there, answers every complete request. Returns 0 when the peer has gone. */
static int serve(int fd, Inbox *box) {
    static Writer out;
    ssize_t n = recv(fd, box->data + box->used, box->room - box->used, 0);
    if (n <= 0) return 0;
    box->used += (size_t)n;
    size_t at = 0, size = 0;
    for (out.used = 0; box->used - at >= 4; at += size) {
        Reader prefix = {box->data + at, box->data + at + 4};
        int64_t length = get(&prefix, 4);
        if (length < 8 || length > 100 << 20) die("frame size out of range");
        size = 4 + (size_t)length;
        if (box->used - at < size) break;
        answer((Reader){box->data + at + 4, box->data + at + size}, &out);
    }
    memmove(box->data, box->data + at, box->used -= at);
    if (size > box->room && !(box->data = realloc(box->data, box->room = size))) die("out of memory");
    for (size_t sent = 0; sent < out.used; sent += (size_t)n)
        if ((n = send(fd, out.data + sent, out.used - sent, MSG_NOSIGNAL)) <= 0) return 0;
    return 1;
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 16)) die("cannot listen");
    if (getsockname(fd, (struct sockaddr *)&address, &size)) die("no address");
    port = ntohs(address.sin_port);
    return fd;
}

int main(int argc, char **argv) {
    static struct pollfd fds[MAX_PEERS + 2];
    static Inbox boxes[MAX_PEERS + 2];
    nfds_t count = 2;
    if (argc > 1) partitions = atoi(argv[1]);
    fds[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = listen_on_loopback(), .events = POLLIN};
    printf("%d\n", port);
    fflush(stdout);
    while (!fds[0].revents) {
        if (poll(fds, count, -1) < 0) die("poll failed");
        if (fds[1].revents && count < MAX_PEERS + 2) {
            int one = 1, fd = accept(fds[1].fd, NULL, NULL);
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            fds[count] = (struct pollfd){.fd = fd, .events = POLLIN};
            if (!boxes[count].data && !(boxes[count].data = malloc(boxes[count].room = 2 << 20))) die("out of memory");
            boxes[count++].used = 0;
        }
        for (nfds_t i = count; i-- > 2;)
            if (fds[i].revents && !serve(fds[i].fd, &boxes[i])) {
                Inbox gone = boxes[i];
                close(fds[i].fd);
                fds[i] = fds[--count];
                boxes[i] = boxes[count];
                boxes[count] = gone;
            }
    }
    printf("{\"records\": %lu, \"bytes\": %lu, \"batches\": %lu, \"requests\": %lu}\n", (unsigned long)records,
           (unsigned long)record_bytes, (unsigned long)batches, (unsigned long)requests);
    return 0;
}
