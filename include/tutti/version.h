/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Version of the Tutti interface, and what it promises.
 *
 * Before 1.0 the interface may still change between minor versions; the soname then changes with
 * it. From 1.0 on, programs built against an older header run with every newer library of the same
 * major version. Functions, enumerators and trailing struct fields are added, never moved.
 */
#ifndef TUTTI_VERSION_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_VERSION_H

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

/* One number that grows with every release: 0xMMmmpp. */
#define TUTTI_API_VERSION                                                                          \
    ((TUTTI_VERSION_MAJOR << 16) | (TUTTI_VERSION_MINOR << 8) | TUTTI_VERSION_PATCH)

/*
 * The version of the library that is running, in the form of TUTTI_API_VERSION.
 *
 * It may be newer than the header a program was built with. Any thread, any time. Since 0.1.
 */
TUTTI_API unsigned tutti_version(void);

#endif
#endif
