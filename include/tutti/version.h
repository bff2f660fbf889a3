/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Version and compatibility of the Tutti interface.
 *
 * Before 1.0, a minor version may change the interface; the soname then changes as well. From 1.0
 * on, a program built with an older header runs with every newer library of the same major version.
 * New functions, enumerators and fields at the end of structures may be added; existing ones are
 * never moved or removed.
 */
#ifndef TUTTI_VERSION_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_VERSION_H

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

/* One number, 0xMMmmpp, that grows with every release. */
#define TUTTI_API_VERSION                                                                          \
    ((TUTTI_VERSION_MAJOR << 16) | (TUTTI_VERSION_MINOR << 8) | TUTTI_VERSION_PATCH)

/*
 * The version of the library that is running, in the form of TUTTI_API_VERSION.
 *
 * It may be newer than the header that the program was built with. Any thread, any time. Since 0.1.
 */
TUTTI_API unsigned tutti_version(void);

#endif
#endif
