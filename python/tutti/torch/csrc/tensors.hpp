/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tensors as the library's buffers: element types, operations, copies of tensors that are not
 * contiguous.
 */
#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "library.hpp"

namespace tutti_torch {

/* How a torch type is passed: `per` elements of `dtype` for each element of the tensor. */
struct Elem {
    tutti_dtype_t dtype;
    size_t per;
    bool is_number; /* false: bytes, which can be moved but not reduced */
};

inline Elem elem_of(const at::Tensor &t)
{
    switch (t.scalar_type()) {
    case at::kByte: return { TUTTI_UINT8, 1, true };
    case at::kChar: return { TUTTI_INT8, 1, true };
    case at::kShort: return { TUTTI_INT16, 1, true };
    case at::kInt: return { TUTTI_INT32, 1, true };
    case at::kLong: return { TUTTI_INT64, 1, true };
    case at::ScalarType::UInt16: return { TUTTI_UINT16, 1, true };
    case at::ScalarType::UInt32: return { TUTTI_UINT32, 1, true };
    case at::ScalarType::UInt64: return { TUTTI_UINT64, 1, true };
    case at::kHalf: return { TUTTI_FLOAT16, 1, true };
    case at::kBFloat16: return { TUTTI_BFLOAT16, 1, true };
    case at::kFloat: return { TUTTI_FLOAT32, 1, true };
    case at::kDouble: return { TUTTI_FLOAT64, 1, true };
    case at::kFloat8_e4m3fn: return { TUTTI_FLOAT8_E4M3, 1, true };
    case at::kFloat8_e5m2: return { TUTTI_FLOAT8_E5M2, 1, true };
    case at::kBool: return { TUTTI_BOOL, 1, true };
    case at::kComplexHalf: return { TUTTI_FLOAT16, 2, true };
    case at::kComplexFloat: return { TUTTI_FLOAT32, 2, true };
    case at::kComplexDouble: return { TUTTI_FLOAT64, 2, true };
    default: return { TUTTI_UINT8, t.element_size(), false };
    }
}

/* An operation, with the factor of PREMUL_SUM. */
struct Reduction {
    tutti_op_t op;
    double prescale; /* 0: none */
};

inline Reduction reduction_of(const c10d::ReduceOp &op)
{
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM: return { TUTTI_SUM, 0 };
    case c10d::ReduceOp::AVG: return { TUTTI_AVG, 0 };
    case c10d::ReduceOp::PRODUCT: return { TUTTI_PROD, 0 };
    case c10d::ReduceOp::MIN: return { TUTTI_MIN, 0 };
    case c10d::ReduceOp::MAX: return { TUTTI_MAX, 0 };
    case c10d::ReduceOp::BAND: return { TUTTI_BAND, 0 };
    case c10d::ReduceOp::BOR: return { TUTTI_BOR, 0 };
    case c10d::ReduceOp::BXOR: return { TUTTI_BXOR, 0 };
    case c10d::ReduceOp::PREMUL_SUM: {
        auto *more = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
        TORCH_CHECK_VALUE(more, "tutti: PREMUL_SUM has no factor");
        double factor = more->tensor_factor.defined() ? more->tensor_factor.item().toDouble()
                                                      : more->double_factor;
        TORCH_CHECK_VALUE(factor != 0, "tutti: the factor of PREMUL_SUM must not be 0");
        return { TUTTI_SUM, factor };
    }
    default: TORCH_CHECK_VALUE(false, "tutti: unknown reduce operation ", int(op.op_));
    }
}

/* Throw the reason if the library cannot reduce `t` by `reduction`. */
inline void check_reducible(const at::Tensor &t, const Reduction &reduction)
{
    TORCH_CHECK_NOT_IMPLEMENTED(elem_of(t).is_number, "tutti: cannot reduce tensors of type ",
                                t.scalar_type());
    TORCH_CHECK_VALUE(!t.is_complex() || reduction.op == TUTTI_SUM || reduction.op == TUTTI_AVG,
                      "tutti: this reduce operation has no meaning for complex numbers (type ",
                      t.scalar_type(), ")");
    TORCH_CHECK_VALUE(reduction.prescale == 0 || t.is_floating_point() || t.is_complex(),
                      "tutti: PREMUL_SUM needs a floating point type, not ", t.scalar_type());
}

inline void check_tensor(const at::Tensor &t, const char *what)
{
    TORCH_CHECK_VALUE(t.defined(), "tutti: ", what, ": a tensor is undefined");
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == at::kStrided, "tutti: ", what,
                                ": tensors of layout ", t.layout(),
                                " are not supported; use a dense tensor");
    TORCH_CHECK_NOT_IMPLEMENTED(t.is_cpu() || t.is_cuda(), "tutti: ", what,
                                ": tensors on device ", t.device(), " are not supported");
}

/* The memory of `t` holds its elements in order. */
inline bool is_plain(const at::Tensor &t)
{
    return t.is_contiguous() && !t.is_conj() && !t.is_neg();
}

/* Copy without autograd and version counters: the tensors may be leaves, or inference tensors. */
inline void copy_into(const at::Tensor &to, const at::Tensor &from)
{
    at::AutoDispatchBelowADInplaceOrView guard;
    to.copy_(from);
}

inline at::Tensor new_plain(const at::Tensor &like, at::IntArrayRef sizes)
{
    at::AutoDispatchBelowADInplaceOrView guard;
    return at::empty(sizes, like.options());
}

inline at::Tensor plain_copy(const at::Tensor &t)
{
    at::Tensor copy = new_plain(t, t.sizes());
    copy_into(copy, t);
    return copy;
}

inline int64_t total_of(const std::vector<at::Tensor> &list)
{
    int64_t total = 0;
    for (const at::Tensor &t : list)
        total += t.numel();
    return total;
}

/* If the tensors follow each other in memory: the first address. NULL if all are empty. */
inline std::optional<void *> adjacent(const std::vector<at::Tensor> &list)
{
    char *first = nullptr, *next = nullptr;

    for (const at::Tensor &t : list) {
        if (!is_plain(t))
            return std::nullopt;
        if (t.numel() == 0)
            continue;
        char *at = static_cast<char *>(t.data_ptr());
        if (next != nullptr && at != next)
            return std::nullopt;
        if (first == nullptr)
            first = at;
        next = at + t.nbytes();
    }
    return first;
}

} // namespace tutti_torch
