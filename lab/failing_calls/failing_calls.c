/* Preloaded into a process, this library counts the calls that change files below a directory, and makes some
 * of them fail. The path of a descriptor is read from /proc/self/fd. Environment variables set the calls that
 * fail:
 *
 *   FAILING_CALLS_UNDER   real path of the directory; without it nothing is counted
 *   FAILING_CALLS_MATCH   extended regular expression for the whole of `CALL:PATH`, or for a rename of
 *                         `CALL:PATH>NEW PATH`; only calls that match are counted
 *   FAILING_CALLS_LOG     file that gets a line for each counted call: its number, name and paths
 *   FAILING_CALLS_AT      number of the call that fails, from 1 on
 *   FAILING_CALLS_TIMES   how many calls fail from there on (default 1); 0: all
 *   FAILING_CALLS_KIND    EIO, ENOSPC, short (a write writes only its first bytes, other calls succeed), or
 *                         kill (SIGKILL before the call, or after the first bytes of a write)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATH_BYTES (2 * PATH_MAX)
#define TORN_BYTES 7

enum outcome { SUCCEEDS, FAILS, IS_SHORT, KILLS };

static const char *under, *kind;
static regex_t match;
static int has_match;
static size_t under_length;
static long at, times;
static int log_descriptor = -1;
static atomic_long counted;

static long number_from(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static int compile_match(const char *text) {
    char whole[1024];
    if (!text || !*text)
        return 0;
    if (snprintf(whole, sizeof whole, "^(%s)$", text) >= (int)sizeof whole
        || regcomp(&match, whole, REG_EXTENDED | REG_NOSUB)) {
        fprintf(stderr, "FAILING_CALLS_MATCH cannot be compiled: %s\n", text);
        _exit(2);
    }
    return 1;
}

__attribute__((constructor)) static void read_environment(void) {
    const char *log = getenv("FAILING_CALLS_LOG");
    under = getenv("FAILING_CALLS_UNDER");
    has_match = compile_match(getenv("FAILING_CALLS_MATCH"));
    kind = getenv("FAILING_CALLS_KIND");
    at = number_from("FAILING_CALLS_AT", 0);
    times = number_from("FAILING_CALLS_TIMES", 1);
    under_length = under ? strlen(under) : 0;
    if (under_length && log && *log)
        log_descriptor = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* --- which calls count ---------------------------------------------------------------------------------- */

static void path_of(int descriptor, char *path) {
    char link[64];
    ssize_t length;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
}

static void path_at(int directory, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_BYTES, "%s", name);
        return;
    }
    if (directory != AT_FDCWD)
        path_of(directory, path);
    else if (!getcwd(path, PATH_MAX))
        path[0] = '\0';
    size_t length = strlen(path);
    snprintf(path + length, PATH_BYTES - length, "/%s", name);
}

static int is_under(const char *path) {
    return !strncmp(path, under, under_length) && (path[under_length] == '/' || path[under_length] == '\0');
}

static int is_matched(const char *call, const char *path, const char *new_path) {
    char subject[2 * PATH_BYTES + 64];
    snprintf(subject, sizeof subject, "%s:%s%s%s", call, path, *new_path ? ">" : "", new_path);
    return !regexec(&match, subject, 0, NULL, 0);
}

/* Count a call, and return its outcome; for FAILS, `errno` is set. */
static enum outcome outcome_of(const char *call, const char *path, const char *other) {
    char line[2 * PATH_BYTES + 64];
    long number;
    int length, kept = errno;
    if (!(is_under(path) || is_under(other)))
        return SUCCEEDS;
    if (has_match && !is_matched(call, path, other))
        return SUCCEEDS;
    number = atomic_fetch_add(&counted, 1) + 1;
    if (log_descriptor >= 0) {
        length = snprintf(line, sizeof line, "%ld\t%s\t%s\t%s\n", number, call, path, other);
        if (syscall(SYS_write, log_descriptor, line, length) < 0)
            errno = kept;
    }
    if (!at || !kind || number < at || (times && number >= at + times))
        return SUCCEEDS;
    if (!strcmp(kind, "short"))
        return IS_SHORT;
    if (!strcmp(kind, "kill"))
        return KILLS;
    errno = !strcmp(kind, "ENOSPC") ? ENOSPC : EIO;
    return FAILS;
}

static _Noreturn void end(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

static enum outcome of_path(const char *call, int directory, const char *name) {
    char path[PATH_BYTES];
    if (!under_length)
        return SUCCEEDS;
    path_at(directory, name, path);
    return outcome_of(call, path, "");
}

static enum outcome of_paths(
    const char *call, int directory, const char *name, int new_directory, const char *new) {
    char path[PATH_BYTES], other[PATH_BYTES];
    if (!under_length)
        return SUCCEEDS;
    path_at(directory, name, path);
    path_at(new_directory, new, other);
    return outcome_of(call, path, other);
}

static enum outcome of_descriptor(const char *call, int descriptor) {
    char path[PATH_BYTES];
    int kept = errno;
    if (!under_length)
        return SUCCEEDS;
    path_of(descriptor, path);
    errno = kept;
    return outcome_of(call, path, "");
}

#define REAL(name)                                                                                           \
    static __typeof__(&name) real;                                                                           \
    if (!real)                                                                                               \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

/* Make a call without data, unless it is to fail. */
#define UNLESS_FAILED(outcome, call)                                                                         \
    switch (outcome) {                                                                                       \
    case FAILS:                                                                                              \
        return -1;                                                                                           \
    case KILLS:                                                                                              \
        end();                                                                                               \
    default:                                                                                                 \
        return call;                                                                                         \
    }

/* --- calls with data ------------------------------------------------------------------------------------ */

static size_t torn(size_t size) { return size > TORN_BYTES ? TORN_BYTES : (size + 1) / 2; }

/* Reduce the buffers to one: the first bytes of the first buffer that is not empty. */
static void tear(const struct iovec **vectors, int *count, struct iovec *first) {
    while (*count > 1 && !(*vectors)->iov_len)
        ++*vectors, --*count;
    if (*count < 1)
        return;
    *first = **vectors;
    first->iov_len = torn(first->iov_len);
    *vectors = first;
    *count = 1;
}

#define WRITES(descriptor, tear_it, call)                                                                    \
    {                                                                                                        \
        enum outcome outcome = of_descriptor(__func__, descriptor);                                          \
        ssize_t written;                                                                                     \
        if (outcome == FAILS)                                                                                \
            return -1;                                                                                       \
        if (outcome != SUCCEEDS)                                                                             \
            tear_it;                                                                                         \
        written = call;                                                                                      \
        if (outcome == KILLS)                                                                                \
            end();                                                                                           \
        return written;                                                                                      \
    }

ssize_t write(int to, const void *data, size_t size) {
    REAL(write) WRITES(to, size = torn(size), real(to, data, size))
}
ssize_t pwrite(int to, const void *data, size_t size, off_t where) {
    REAL(pwrite) WRITES(to, size = torn(size), real(to, data, size, where))
}
ssize_t pwrite64(int to, const void *data, size_t size, off64_t where) {
    REAL(pwrite64) WRITES(to, size = torn(size), real(to, data, size, where))
}
ssize_t writev(int to, const struct iovec *data, int count) {
    struct iovec first;
    REAL(writev) WRITES(to, tear(&data, &count, &first), real(to, data, count))
}
ssize_t pwritev(int to, const struct iovec *data, int count, off_t where) {
    struct iovec first;
    REAL(pwritev) WRITES(to, tear(&data, &count, &first), real(to, data, count, where))
}
ssize_t pwritev64(int to, const struct iovec *data, int count, off64_t where) {
    struct iovec first;
    REAL(pwritev64) WRITES(to, tear(&data, &count, &first), real(to, data, count, where))
}
ssize_t pwritev2(int to, const struct iovec *data, int count, off_t where, int flags) {
    struct iovec first;
    REAL(pwritev2) WRITES(to, tear(&data, &count, &first), real(to, data, count, where, flags))
}
ssize_t pwritev64v2(int to, const struct iovec *data, int count, off64_t where, int flags) {
    struct iovec first;
    REAL(pwritev64v2) WRITES(to, tear(&data, &count, &first), real(to, data, count, where, flags))
}
ssize_t sendfile(int to, int from, off_t *where, size_t size) {
    REAL(sendfile) WRITES(to, size = torn(size), real(to, from, where, size))
}
ssize_t sendfile64(int to, int from, off64_t *where, size_t size) {
    REAL(sendfile64) WRITES(to, size = torn(size), real(to, from, where, size))
}
ssize_t copy_file_range(int from, off64_t *where, int to, off64_t *there, size_t size, unsigned flags) {
    REAL(copy_file_range) WRITES(to, size = torn(size), real(from, where, to, there, size, flags))
}

/* --- calls on a descriptor ------------------------------------------------------------------------------ */

int ftruncate(int file, off_t size) {
    REAL(ftruncate) UNLESS_FAILED(of_descriptor(__func__, file), real(file, size))
}
int ftruncate64(int file, off64_t size) {
    REAL(ftruncate64) UNLESS_FAILED(of_descriptor(__func__, file), real(file, size))
}
int fsync(int file) { REAL(fsync) UNLESS_FAILED(of_descriptor(__func__, file), real(file)) }
int fdatasync(int file) { REAL(fdatasync) UNLESS_FAILED(of_descriptor(__func__, file), real(file)) }
int futimens(int file, const struct timespec times_of[2]) {
    REAL(futimens) UNLESS_FAILED(of_descriptor(__func__, file), real(file, times_of))
}
int syncfs(int file) { REAL(syncfs) UNLESS_FAILED(of_descriptor(__func__, file), real(file)) }
int sync_file_range(int file, off64_t where, off64_t size, unsigned flags) {
    REAL(sync_file_range) UNLESS_FAILED(of_descriptor(__func__, file), real(file, where, size, flags))
}
int fallocate(int file, int mode, off_t where, off_t size) {
    REAL(fallocate) UNLESS_FAILED(of_descriptor(__func__, file), real(file, mode, where, size))
}
int fallocate64(int file, int mode, off64_t where, off64_t size) {
    REAL(fallocate64) UNLESS_FAILED(of_descriptor(__func__, file), real(file, mode, where, size))
}
/* posix_fallocate returns the error number instead of setting `errno`. */
int posix_fallocate(int file, off_t where, off_t size) {
    enum outcome outcome = of_descriptor(__func__, file);
    REAL(posix_fallocate)
    if (outcome == KILLS)
        end();
    return outcome == FAILS ? errno : real(file, where, size);
}
int posix_fallocate64(int file, off64_t where, off64_t size) {
    enum outcome outcome = of_descriptor(__func__, file);
    REAL(posix_fallocate64)
    if (outcome == KILLS)
        end();
    return outcome == FAILS ? errno : real(file, where, size);
}

/* --- calls on paths ------------------------------------------------------------------------------------- */

static int creates(int flags) { return flags & (O_CREAT | O_TRUNC); }

#define MODE_OF(flags)                                                                                       \
    mode_t mode = 0;                                                                                         \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {                                         \
        va_list rest;                                                                                        \
        va_start(rest, flags);                                                                               \
        mode = va_arg(rest, mode_t);                                                                         \
        va_end(rest);                                                                                        \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    REAL(open)
    UNLESS_FAILED(creates(flags) ? of_path(__func__, AT_FDCWD, path) : SUCCEEDS, real(path, flags, mode))
}
int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    REAL(open64)
    UNLESS_FAILED(creates(flags) ? of_path(__func__, AT_FDCWD, path) : SUCCEEDS, real(path, flags, mode))
}
int openat(int directory, const char *path, int flags, ...) {
    MODE_OF(flags)
    REAL(openat)
    UNLESS_FAILED(
        creates(flags) ? of_path(__func__, directory, path) : SUCCEEDS, real(directory, path, flags, mode))
}
int openat64(int directory, const char *path, int flags, ...) {
    MODE_OF(flags)
    REAL(openat64)
    UNLESS_FAILED(
        creates(flags) ? of_path(__func__, directory, path) : SUCCEEDS, real(directory, path, flags, mode))
}
int creat(const char *path, mode_t mode) {
    REAL(creat) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(path, mode))
}
int truncate(const char *path, off_t size) {
    REAL(truncate) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(path, size))
}
int truncate64(const char *path, off64_t size) {
    REAL(truncate64) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(path, size))
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(path, mode))
}
int mkdirat(int directory, const char *path, mode_t mode) {
    REAL(mkdirat) UNLESS_FAILED(of_path(__func__, directory, path), real(directory, path, mode))
}
int rmdir(const char *path) { REAL(rmdir) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(path)) }
int unlink(const char *path) { REAL(unlink) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(path)) }
int unlinkat(int directory, const char *path, int flags) {
    REAL(unlinkat) UNLESS_FAILED(of_path(__func__, directory, path), real(directory, path, flags))
}
int remove(const char *path) { REAL(remove) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(path)) }
int utimensat(int directory, const char *path, const struct timespec times_of[2], int flags) {
    REAL(utimensat) UNLESS_FAILED(of_path(__func__, directory, path), real(directory, path, times_of, flags))
}
int rename(const char *old, const char *new) {
    REAL(rename) UNLESS_FAILED(of_paths(__func__, AT_FDCWD, old, AT_FDCWD, new), real(old, new))
}
int renameat(int old_directory, const char *old, int new_directory, const char *new) {
    REAL(renameat)
    UNLESS_FAILED(of_paths(__func__, old_directory, old, new_directory, new),
        real(old_directory, old, new_directory, new))
}
int renameat2(int old_directory, const char *old, int new_directory, const char *new, unsigned flags) {
    REAL(renameat2)
    UNLESS_FAILED(of_paths(__func__, old_directory, old, new_directory, new),
        real(old_directory, old, new_directory, new, flags))
}
int link(const char *old, const char *new) {
    REAL(link) UNLESS_FAILED(of_paths(__func__, AT_FDCWD, old, AT_FDCWD, new), real(old, new))
}
int symlink(const char *target, const char *path) {
    REAL(symlink) UNLESS_FAILED(of_path(__func__, AT_FDCWD, path), real(target, path))
}
