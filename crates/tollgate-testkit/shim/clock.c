/* Preloaded into an engine: adds an offset to its wall clock while it runs. The monotonic clocks stay.
 *
 * The file named by TOLLGATE_CLOCK holds the offset, a 64-bit number of nanoseconds. It is mapped, so that a
 * change is seen at once and reading the clock costs no extra system call. The real time comes from raw
 * system calls: looking up libc's own function allocates, which Redis' allocator does not survive at start.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("TOLLGATE_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) offset = mapped;
}

static int64_t wall_clock(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec + (offset ? *offset : 0);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, time);
    int64_t now = wall_clock();
    time->tv_sec = now / INT64_C(1000000000);
    time->tv_nsec = now % INT64_C(1000000000);
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    int64_t now = wall_clock();
    time->tv_sec = now / INT64_C(1000000000);
    time->tv_usec = now % INT64_C(1000000000) / 1000;
    return 0;
}

time_t time(time_t *time) {
    time_t now = wall_clock() / INT64_C(1000000000);
    if (time) *time = now;
    return now;
}
