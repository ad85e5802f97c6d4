/* Records what a process made durable, so that a power cut can be simulated after kill -9.
 *
 * Writes one line per operation on files under KAFKAESQUE_POWER_ROOT to KAFKAESQUE_POWER_JOURNAL. Fields
 * are separated by tabs; lab/faults/power.py reads them:
 *
 *   B id size path     a sync of a file of this size begins
 *   D id path          a sync of a directory begins; N lines follow
 *   N id path          an entry of that directory
 *   E id               that sync succeeded
 *   O position hex path   these bytes are about to be overwritten
 *   T size path        truncated or extended to this size
 *   R backup old new   renamed; backup is a link to the file that `new` named before, or -
 *   U backup path      removed; backup is a link to it
 *
 * Durable is only what existed when a successful sync BEGAN. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OVERWRITE_MAX 4096
#define LINE_MAX_BYTES (2 * OVERWRITE_MAX + 2 * PATH_MAX + 128)

static int journal = -1;
static char root[PATH_MAX], backups[PATH_MAX / 2];
static atomic_long sync_ids, backup_ids;

__attribute__((constructor)) static void begin(void)
{
    const char *file = getenv("KAFKAESQUE_POWER_JOURNAL");
    const char *under = getenv("KAFKAESQUE_POWER_ROOT");
    const char *links = getenv("KAFKAESQUE_POWER_BACKUPS");
    if (!file || !under || !links)
        return;
    snprintf(root, sizeof root, "%s/", under);
    snprintf(backups, sizeof backups, "%s", links);
    journal = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void note(const char *line)
{
    size_t length = strlen(line);
    /* One write per line: O_APPEND keeps the lines of several threads whole. */
    if (write(journal, line, length) != (ssize_t)length)
        _exit(97);
}

static int is_ours(const char *path)
{
    return journal >= 0 && strncmp(path, root, strlen(root)) == 0;
}

static int path_of(int fd, char *path)
{
    char link[64];
    if (journal < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return is_ours(path) || (strncmp(path, root, strlen(root) - 1) == 0 && length == (ssize_t)strlen(root) - 1);
}

static void note_names(long id, const char *path)
{
    char line[LINE_MAX_BYTES];
    DIR *directory = opendir(path);
    if (!directory)
        return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(line, sizeof line, "N\t%ld\t%s/%s\n", id, path, entry->d_name);
        note(line);
    }
    closedir(directory);
}

static int synced(int fd, int (*real)(int))
{
    char path[PATH_MAX], line[LINE_MAX_BYTES];
    struct stat facts;
    long id = 0;
    int wanted = path_of(fd, path) && fstat(fd, &facts) == 0;
    if (wanted) {
        id = atomic_fetch_add(&sync_ids, 1);
        if (S_ISDIR(facts.st_mode)) {
            snprintf(line, sizeof line, "D\t%ld\t%s\n", id, path);
            note(line);
            note_names(id, path);
        } else {
            snprintf(line, sizeof line, "B\t%ld\t%lld\t%s\n", id, (long long)facts.st_size, path);
            note(line);
        }
    }
    int failed = real(fd);
    if (wanted && failed == 0) {
        snprintf(line, sizeof line, "E\t%ld\n", id);
        note(line);
    }
    return failed;
}

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fsync");
    return synced(fd, real);
}

int fdatasync(int fd)
{
    static int (*real)(int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fdatasync");
    return synced(fd, real);
}

static void overwriting(int fd, size_t count, off_t position)
{
    char path[PATH_MAX], line[LINE_MAX_BYTES];
    unsigned char old[OVERWRITE_MAX];
    struct stat facts;
    if (!path_of(fd, path) || fstat(fd, &facts) != 0 || position >= facts.st_size)
        return;
    size_t wanted = count < sizeof old ? count : sizeof old;
    ssize_t got = pread(fd, old, wanted, position);
    if (got <= 0)
        return;
    int at = snprintf(line, sizeof line, "O\t%lld\t", (long long)position);
    for (ssize_t byte = 0; byte < got; byte++)
        at += sprintf(line + at, "%02x", old[byte]);
    snprintf(line + at, sizeof line - at, "\t%s\n", path);
    note(line);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t position)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite");
    overwriting(fd, count, position);
    return real(fd, data, count, position);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t position)
{
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pwrite64");
    overwriting(fd, count, position);
    return real(fd, data, count, position);
}

static void cutting(int fd, long long size)
{
    char path[PATH_MAX], line[LINE_MAX_BYTES];
    if (!path_of(fd, path))
        return;
    snprintf(line, sizeof line, "T\t%lld\t%s\n", size, path);
    note(line);
}

int ftruncate(int fd, off_t size)
{
    static int (*real)(int, off_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "ftruncate");
    cutting(fd, (long long)size);
    return real(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    static int (*real)(int, off64_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "ftruncate64");
    cutting(fd, (long long)size);
    return real(fd, size);
}

static int keep(const char *path, char *backup)
{
    snprintf(backup, PATH_MAX, "%s/%ld", backups, atomic_fetch_add(&backup_ids, 1));
    return link(path, backup) == 0;
}

int rename(const char *from, const char *to)
{
    static int (*real)(const char *, const char *);
    char backup[PATH_MAX] = "-", line[LINE_MAX_BYTES];
    if (!real)
        real = dlsym(RTLD_NEXT, "rename");
    int wanted = is_ours(to);
    if (wanted && !keep(to, backup))
        strcpy(backup, "-");
    int failed = real(from, to);
    if (wanted && failed == 0) {
        snprintf(line, sizeof line, "R\t%s\t%s\t%s\n", backup, from, to);
        note(line);
    }
    return failed;
}

int unlink(const char *path)
{
    static int (*real)(const char *);
    char backup[PATH_MAX], line[LINE_MAX_BYTES];
    if (!real)
        real = dlsym(RTLD_NEXT, "unlink");
    int wanted = is_ours(path) && keep(path, backup);
    int failed = real(path);
    if (wanted && failed == 0) {
        snprintf(line, sizeof line, "U\t%s\t%s\n", backup, path);
        note(line);
    }
    return failed;
}
