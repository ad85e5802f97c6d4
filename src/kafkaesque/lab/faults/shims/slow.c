/* Slows down the disk of one process: delays every sync by the microseconds in the file named by
 * KAFKAESQUE_SLOW. The file may change at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *delay_us;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("KAFKAESQUE_SLOW");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED)
        delay_us = page;
}

static void wait_a_while(void)
{
    int64_t left = delay_us ? *delay_us : 0;
    /* In pieces, so that a shorter delay also applies to callers that are already waiting. */
    while (left > 0 && *delay_us > 0) {
        useconds_t piece = left < 10000 ? (useconds_t)left : 10000;
        usleep(piece);
        left -= piece;
    }
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    wait_a_while();
    return real(fd);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    wait_a_while();
    return real(fd);
}
