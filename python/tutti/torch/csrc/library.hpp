/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libtutti by its C interface: a table of function pointers, and its errors as exceptions.
 *
 * The module does not link the library. The package tells it which file to open, so the C++ and the
 * ctypes parts of one process use the same one.
 */
#pragma once

#include <dlfcn.h>

#include <exception>
#include <string>

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <tutti/cuda.h>
#include <tutti/tutti.h>

#define TUTTI_TORCH_AT_LEAST(major, minor)                                                         \
    (TORCH_VERSION_MAJOR > (major) ||                                                              \
     (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace tutti_torch {

#define TUTTI_TORCH_FUNCTIONS(X)                                                                   \
    X(strerror) X(last_error) X(init) X(finalize) X(world) X(abort) X(comm_free) X(comm_state)     \
    X(submit) X(wait) X(cuda_submit) X(cuda_wait)

/* The library's functions, without their prefix. A function below the list is NULL if the library
   is too old to have it. */
struct Library {
#define TUTTI_TORCH_MEMBER(name) decltype(::tutti_##name) *name = nullptr;
    TUTTI_TORCH_FUNCTIONS(TUTTI_TORCH_MEMBER)
#undef TUTTI_TORCH_MEMBER
    tutti_status_t (*comm_connect)(const tutti_options_t *, tutti_comm_t **) = nullptr;
    tutti_status_t (*mem_alloc_local)(tutti_comm_t *, size_t, void **) = nullptr;
    tutti_status_t (*mem_free_local)(void *) = nullptr;

    template <typename Function>
    static void find(Function &function, void *handle, const char *name)
    {
        function = reinterpret_cast<Function>(dlsym(handle, name));
    }

    void open(const std::string &path)
    {
        void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        TORCH_CHECK(handle, "tutti: ", dlerror());
#define TUTTI_TORCH_FIND(name)                                                                     \
    find(name, handle, "tutti_" #name);                                                            \
    TORCH_CHECK(name, "tutti: ", path, " has no function tutti_" #name);
        TUTTI_TORCH_FUNCTIONS(TUTTI_TORCH_FIND)
#undef TUTTI_TORCH_FIND
        find(comm_connect, handle, "tutti_comm_connect");
        find(mem_alloc_local, handle, "tutti_mem_alloc_local");
        find(mem_free_local, handle, "tutti_mem_free_local");
    }
};

inline Library lib;

/* The exception of a status. In Python, TUTTI_ERR_INVALID_ARGUMENT is a ValueError,
   TUTTI_ERR_UNSUPPORTED a NotImplementedError, and every other status torch's DistBackendError. */
inline std::exception_ptr error_of(tutti_status_t status, const std::string &text)
{
    const c10::SourceLocation here = { __func__, __FILE__, static_cast<uint32_t>(__LINE__) };

    if (status == TUTTI_ERR_INVALID_ARGUMENT)
        return std::make_exception_ptr(c10::ValueError(here, text));
    if (status == TUTTI_ERR_UNSUPPORTED)
        return std::make_exception_ptr(c10::NotImplementedError(here, text));
    return std::make_exception_ptr(c10::DistBackendError(here, text));
}

/* The group's label, and the text of this thread's last error. */
inline std::string text_of(tutti_status_t status, const std::string &label)
{
    const char *text = lib.last_error();
    return label + ": " + (*text ? text : lib.strerror(status));
}

inline void check(tutti_status_t status, const std::string &label)
{
    if (C10_UNLIKELY(status != TUTTI_OK))
        std::rethrow_exception(error_of(status, text_of(status, label)));
}

/* Set the field timeout_ms. Without effect if Tutti's headers are too old to have this field. */
template <typename T>
auto set_timeout(T &options, int timeout_ms) -> decltype(options.timeout_ms = 0, void())
{
    options.timeout_ms = timeout_ms;
}

inline void set_timeout(...)
{
}

} // namespace tutti_torch
