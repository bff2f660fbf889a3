/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Python module of the C++ backend. tutti/torch/build.py compiles this one file, for the
 * version of torch that is installed. The headers beside it are its parts:
 *
 *     library.hpp      libtutti's functions, and its errors as exceptions
 *     tensors.hpp      element types, operations, plain copies
 *     calls.hpp        one c10d call as calls of the library
 *     group.hpp        a communicator, and the submission of calls
 *     base_work.hpp    the common part of all Work: outputs, a future, completion
 *     work.hpp         the Work of an asynchronous call
 *     pool.hpp         threads that complete futures
 *     messages.hpp     names of messages, receives from any source
 *     backend.hpp      the class; the next four headers have its methods
 *     collectives.hpp  reductions, broadcast, barrier
 *     exchanges.hpp    calls that move data without reducing it
 *     sparse.hpp       the sum of sparse tensors
 *     lifecycle.hpp    begin and end of a group, monitored_barrier, coalescing
 */
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

#include "lifecycle.hpp"

namespace py = pybind11;

/* Called without Python's lock: the store may be one written in Python, and connecting waits. */
static c10::intrusive_ptr<c10d::Backend> create(const tutti_torch::StorePtr &store, int rank,
                                                int size, std::chrono::milliseconds timeout,
                                                const std::string &name)
{
    return c10::make_intrusive<tutti_torch::TuttiBackend>(store, rank, size, timeout, name);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.doc() = "The c10d backend of Tutti in C++.";
    py::class_<tutti_torch::TuttiWork, c10d::Work, c10::intrusive_ptr<tutti_torch::TuttiWork>>(
        m, "TuttiWork", "An asynchronous call.")
        .def("device",
             [](tutti_torch::TuttiWork &w) {
                 return w.calls().is_cuda() ? w.calls().device()->str() : std::string();
             },
             "The device of the tensors; \"\": none.")
        .def("call_name", &tutti_torch::TuttiWork::call_name);
    m.def(
        "swap_origin",
        [](const std::string &name, uint64_t calls) {
            auto before = std::make_pair(tutti_torch::origin.name, tutti_torch::origin.calls);
            tutti_torch::origin = { name, calls };
            return before;
        },
        "Set the origin of this thread's calls; returns the one before.");
    m.def("open", [](const std::string &path) { tutti_torch::lib.open(path); }, py::arg("path"),
          "Load the library; before create().");
    m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
          py::arg("timeout"), py::arg("name"), py::call_guard<py::gil_scoped_release>(),
          "The backend of one group. Blocks until all its ranks have connected.");
}
