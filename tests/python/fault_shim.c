/* Preloaded by the fault tests: counts the file calls on one folder, and at the n-th one kills the process right after
   it, or makes it fail with an errno. Also keeps the order of the calls. With FAULT_RECORD (a file) and FAULT_FOLDER set,
   every call that succeeded is written there with its data: tests/python/power_loss.py replays them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[512];
static int countdown = -1, failure = 0, seen = 0;
static unsigned char watched[4096];
static char order[65536];

void fault_arm(const char* path, int at, int error) {
  snprintf(folder, sizeof folder, "%s", path);
  countdown = at;
  failure = error;
  seen = 0;
  order[0] = 0;
}
int fault_seen(void) { return seen; }
const char* fault_order(void) { return order; }

static void note(const char* name, const char* path) {
  size_t used = strlen(order);
  const char* base = path ? strrchr(path, '/') : 0;
  if (used + 200 < sizeof order) snprintf(order + used, sizeof order - used, "%s %s\n", name, base ? base + 1 : "");
}
/* 1: this call is to fail. */
static int before(const char* name, const char* path) {
  if (!folder[0]) return 0;
  ++seen;
  note(name, path);
  if (countdown < 0) return 0;
  if (failure && countdown == seen) {
    errno = failure;
    return 1;
  }
  return 0;
}
static void after(void) {
  if (folder[0] && !failure && countdown == seen) kill(getpid(), SIGKILL);
}
/* One record: "<op> <offset> <length of data> <name>\0<other name>\0" and the data. */
static int record_fd = -1;
static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;
static char names[4096][256];

__attribute__((constructor)) static void begin_record(void) {
  const char *file = getenv("FAULT_RECORD"), *where = getenv("FAULT_FOLDER");
  if (!file || !where) return;
  snprintf(folder, sizeof folder, "%s", where);
  record_fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}
static const char* name_of(const char* path) {
  const char* rest = path + strlen(folder);
  while (*rest == '/') ++rest;
  return *rest ? rest : ".";
}
static void record(const char* op, const char* name, const char* other, long long at, const void* data, size_t bytes) {
  if (record_fd < 0) return;
  int saved = errno;
  char head[700];
  int length = snprintf(head, sizeof head, "%s %lld %zu %s", op, at, bytes, name) + 1;
  length += snprintf(head + length, sizeof head - (size_t)length, "%s", other) + 1;
  pthread_mutex_lock(&record_lock);
  if (syscall(SYS_write, record_fd, head, (size_t)length) != length) abort();
  if (bytes && syscall(SYS_write, record_fd, data, bytes) != (long)bytes) abort();
  pthread_mutex_unlock(&record_lock);
  errno = saved;
}

static int ours(const char* path) { return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0; }
static int ours_fd(int fd) { return fd >= 0 && fd < 4096 && watched[fd]; }

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
#define OPEN(name) \
  int name(const char* path, int flags, ...) { \
    va_list args; va_start(args, flags); mode_t mode = va_arg(args, mode_t); va_end(args); \
    REAL(int, name, const char*, int, mode_t); \
    if (!ours(path)) return real(path, flags, mode); \
    if (before(flags & O_CREAT ? "create" : "open", path)) return -1; \
    int fd = real(path, flags, mode); \
    if (fd >= 0 && fd < 4096) { \
      watched[fd] = 1; \
      snprintf(names[fd], sizeof names[fd], "%s", name_of(path)); \
      if (flags & O_CREAT) record("create", names[fd], flags & O_TRUNC ? "truncate" : "", 0, 0, 0); \
    } \
    after(); return fd; }
OPEN(open)
OPEN(open64)
#define ON_FD(type, name, shown, parameters, arguments, note_it) \
  type name parameters { \
    static type (*real) parameters; if (!real) real = (type (*) parameters)dlsym(RTLD_NEXT, #name); \
    if (!ours_fd(fd)) return real arguments; \
    if (before(shown, 0)) return -1; \
    type result = real arguments; int saved = errno; if (result >= 0) { note_it; } after(); errno = saved; return result; }
ON_FD(ssize_t, pwrite, "pwrite", (int fd, const void* data, size_t bytes, off_t at), (fd, data, bytes, at),
      record("write", names[fd], "", (long long)at, data, (size_t)result))
ON_FD(ssize_t, pwrite64, "pwrite", (int fd, const void* data, size_t bytes, off64_t at), (fd, data, bytes, at),
      record("write", names[fd], "", (long long)at, data, (size_t)result))
ON_FD(ssize_t, write, "write", (int fd, const void* data, size_t bytes), (fd, data, bytes),
      record("append", names[fd], "", -1, data, (size_t)result))
ON_FD(int, fallocate, "fallocate", (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes),
      record("allocate", names[fd], "", (long long)(at + bytes), 0, 0))
ON_FD(int, fallocate64, "fallocate", (int fd, int mode, off64_t at, off64_t bytes), (fd, mode, at, bytes),
      record("allocate", names[fd], "", (long long)(at + bytes), 0, 0))
ON_FD(int, ftruncate, "ftruncate", (int fd, off_t bytes), (fd, bytes), record("truncate", names[fd], "", (long long)bytes, 0, 0))
ON_FD(int, ftruncate64, "ftruncate", (int fd, off64_t bytes), (fd, bytes), record("truncate", names[fd], "", (long long)bytes, 0, 0))
ON_FD(int, fdatasync, "fdatasync", (int fd), (fd), record("sync", names[fd], "", 0, 0, 0))
ON_FD(int, fsync, "fsync", (int fd), (fd), record("sync", names[fd], "", 0, 0, 0))

int close(int fd) {
  REAL(int, close, int);
  if (!ours_fd(fd)) return real(fd);
  watched[fd] = 0;
  if (failure == 0) before("close", 0);
  int result = real(fd);
  after();
  return result;
}
int rename(const char* from, const char* to) {
  REAL(int, rename, const char*, const char*);
  if (!ours(from)) return real(from, to);
  if (before("rename", to)) return -1;
  int result = real(from, to), saved = errno;
  if (result == 0) record("rename", name_of(from), name_of(to), 0, 0, 0);
  after();
  errno = saved;
  return result;
}
int unlink(const char* path) {
  REAL(int, unlink, const char*);
  if (!ours(path)) return real(path);
  if (before("unlink", path)) return -1;
  int result = real(path), saved = errno;
  if (result == 0) record("unlink", name_of(path), "", 0, 0, 0);
  after();
  errno = saved;
  return result;
}
