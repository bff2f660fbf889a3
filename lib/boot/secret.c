/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the job's secret, and opens libcrypto. See secret.h. Called by tutti_init. */
#include "boot/secret.h"

#include "base/hash.h"
#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHA256_BYTES 32

/* libcrypto's functions, as <openssl/hmac.h> of versions 1.1 and 3 declares them. */
typedef const void *sha256_f(void);
typedef unsigned char *hmac_f(const void *digest, const void *key, int key_bytes,
                              const unsigned char *data, size_t bytes, unsigned char *ret_code,
                              unsigned *ret_bytes);

static struct {
    sha256_f *sha256;
    hmac_f *hmac;
    char error[200]; /* the reason why libcrypto cannot be opened */
} crypto;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Called once. libcrypto stays open. */
static void open_crypto(void)
{
    static const char *const names[] = { "libcrypto.so.3", "libcrypto.so.1.1" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && crypto.hmac == NULL; i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);

        if (handle == NULL) {
            if (i == 0)
                snprintf(crypto.error, sizeof(crypto.error), "%s", dlerror());
            continue;
        }
        crypto.sha256 = (sha256_f *)dlsym(handle, "EVP_sha256");
        crypto.hmac = crypto.sha256 == NULL ? NULL : (hmac_f *)dlsym(handle, "HMAC");
        if (crypto.hmac == NULL)
            snprintf(crypto.error, sizeof(crypto.error), "%s has no HMAC", names[i]);
    }
}

static tutti_status_t unreadable(const char *path, const char *why)
{
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_JOB_SECRET_FILE: cannot read %.300s: %s",
                       path, why);
}

/* Read a secret, without the line end that an editor or `echo` adds. */
static tutti_status_t read_fd(int fd, const char *path, tutti__secret_t *secret)
{
    char extra;
    struct stat info;

    if (fstat(fd, &info) != 0)
        return unreadable(path, strerror(errno));
    if (S_ISREG(info.st_mode) && (info.st_mode & 077) != 0)
        TUTTI__LOG(TUTTI__LOG_WARN,
                   "other users may have access to %s, the file with the job's "
                   "secret (mode %o)",
                   path, (unsigned)(info.st_mode & 07777));
    while (secret->bytes < sizeof(secret->key)) {
        ssize_t n = read(fd, secret->key + secret->bytes, sizeof(secret->key) - secret->bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return unreadable(path, strerror(errno));
        if (n == 0)
            break;
        secret->bytes += (size_t)n;
    }
    if (secret->bytes == sizeof(secret->key) && read(fd, &extra, 1) > 0)
        return unreadable(path, "it is longer than 4096 bytes");
    while (secret->bytes > 0 &&
           (secret->key[secret->bytes - 1] == '\n' || secret->key[secret->bytes - 1] == '\r'))
        secret->bytes--;
    return secret->bytes > 0 ? TUTTI_OK : unreadable(path, "it is empty");
}

/* O_NONBLOCK: otherwise the open of a pipe could wait for a writer for ever. */
static tutti_status_t read_file(const char *path, tutti__secret_t *secret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tutti_status_t status;

    if (fd < 0)
        return unreadable(path, strerror(errno));
    status = read_fd(fd, path, secret);
    close(fd);
    return status;
}

tutti_status_t tutti__secret_read(const tutti__conf_t *conf, tutti__secret_t *ret_secret)
{
    tutti_status_t status = TUTTI_OK;

    ret_secret->bytes = 0;
    if (conf->job_secret_file[0] != '\0') {
        status = read_file(conf->job_secret_file, ret_secret);
    } else {
        ret_secret->bytes = strlen(conf->job_secret);
        memcpy(ret_secret->key, conf->job_secret, ret_secret->bytes);
    }
    if (status != TUTTI_OK || ret_secret->bytes == 0)
        return status;
    pthread_once(&once, open_crypto);
    if (crypto.hmac == NULL)
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "a job secret is set, but libcrypto.so.3 cannot be used (Debian's "
                           "package libssl3, Red Hat's openssl-libs): %s",
                           crypto.error);
    return TUTTI_OK;
}

/* Two different hashes of 64 bits. */
static void hash(const void *data, size_t bytes, unsigned char *ret_code)
{
    uint64_t codes[2] = { tutti__hash(data, bytes), tutti__hash("again", 5) };

    codes[1] = tutti__hash_more(codes[1], data, bytes);
    memcpy(ret_code, codes, sizeof(codes));
}

tutti_status_t tutti__secret_code(const tutti__secret_t *secret, const void *data, size_t bytes,
                                  unsigned char ret_code[TUTTI__CODE_BYTES])
{
    unsigned char whole[64];
    unsigned length = 0;

    if (secret->bytes == 0) {
        hash(data, bytes, ret_code);
        return TUTTI_OK;
    }
    if (crypto.hmac(crypto.sha256(), secret->key, (int)secret->bytes, data, bytes, whole,
                    &length) == NULL ||
        length != SHA256_BYTES)
        return tutti__fail(TUTTI_ERR_SYSTEM, "libcrypto's HMAC has failed");
    memcpy(ret_code, whole, TUTTI__CODE_BYTES);
    return TUTTI_OK;
}

_Static_assert(2 * sizeof(uint64_t) == TUTTI__CODE_BYTES, "a code has two hashes");
