/* Counts the calls that change or open files below a folder, and ends the process at one of them.

   Loaded before libc (LD_PRELOAD). A write that is chosen is done by half first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST 65536
static char root[4096];
static long chosen, counted;
static unsigned char ours[MOST];

void shim_arm(const char *folder, long call) {
    strncpy(root, folder, sizeof root - 1);
    chosen = call;
    counted = 0;
}

long shim_counted(void) { return counted; }

static int below(int folder, const char *path) {
    if (!root[0] || !path) return 0;
    if (path[0] == '/') return strncmp(path, root, strlen(root)) == 0;
    if (folder >= 0 && folder < MOST) return ours[folder];
    return 1; /* the working folder is the root */
}

static int now(void) { return __sync_add_and_fetch(&counted, 1) == chosen; }

static void end(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        int mine = below(AT_FDCWD, path); \
        if (mine && now()) end(); \
        int found = real(path, flags, mode); \
        if (found >= 0 && found < MOST) ours[found] = mine; \
        return found; \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...); \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
        int mine = below(folder, path); \
        if (mine && now()) end(); \
        int found = real(folder, path, flags, mode); \
        if (found >= 0 && found < MOST) ours[found] = mine; \
        return found; \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

#define OPENS_STREAM(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(FILE *, name, const char *, const char *); \
        int mine = below(AT_FDCWD, path); \
        if (mine && now()) end(); \
        FILE *found = real(path, mode); \
        if (found && fileno(found) < MOST) ours[fileno(found)] = mine; \
        return found; \
    }
OPENS_STREAM(fopen)
OPENS_STREAM(fopen64)

size_t fwrite(const void *from, size_t size, size_t count, FILE *file) {
    REAL(size_t, fwrite, const void *, size_t, size_t, FILE *);
    int at = fileno(file);
    if (at > 2 && at < MOST && ours[at] && now()) {
        real(from, size, count / 2, file);
        fflush(file);
        end();
    }
    return real(from, size, count, file);
}

ssize_t write(int at, const void *from, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (at > 2 && at < MOST && ours[at] && now()) {
        real(at, from, size / 2);
        end();
    }
    return real(at, from, size);
}

#define WRITES_AT(name) \
    ssize_t name(int at, const void *from, size_t size, off64_t place) { \
        REAL(ssize_t, name, int, const void *, size_t, off64_t); \
        if (at > 2 && at < MOST && ours[at] && now()) { \
            real(at, from, size / 2, place); \
            end(); \
        } \
        return real(at, from, size, place); \
    }
WRITES_AT(pwrite)
WRITES_AT(pwrite64)

ssize_t writev(int at, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    if (at > 2 && at < MOST && ours[at] && now()) end();
    return real(at, parts, count);
}

#define OF_DESCRIPTOR(name) \
    int name(int at) { \
        REAL(int, name, int); \
        if (at > 2 && at < MOST && ours[at] && now()) end(); \
        return real(at); \
    }
OF_DESCRIPTOR(fsync)
OF_DESCRIPTOR(fdatasync)

#define TRUNCATES(name) \
    int name(int at, off64_t size) { \
        REAL(int, name, int, off64_t); \
        if (at > 2 && at < MOST && ours[at] && now()) end(); \
        return real(at, size); \
    }
TRUNCATES(ftruncate)
TRUNCATES(ftruncate64)

int close(int at) {
    REAL(int, close, int);
    if (at > 2 && at < MOST) ours[at] = 0;
    return real(at);
}

#define OF_PATH(name) \
    int name(const char *path) { \
        REAL(int, name, const char *); \
        if (below(AT_FDCWD, path) && now()) end(); \
        return real(path); \
    }
OF_PATH(unlink)
OF_PATH(rmdir)
OF_PATH(remove)

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    if (below(AT_FDCWD, path) && now()) end();
    return real(path, mode);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    if (below(folder, path) && now()) end();
    return real(folder, path, flags);
}

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    if (below(AT_FDCWD, to) && now()) end();
    return real(from, to);
}

int renameat(int one, const char *from, int other, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    if (below(other, to) && now()) end();
    return real(one, from, other, to);
}

int renameat2(int one, const char *from, int other, const char *to, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    if (below(other, to) && now()) end();
    return real(one, from, other, to, flags);
}
