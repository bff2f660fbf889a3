# SPDX-License-Identifier: BSD-3-Clause
"""Tests which objects are accepted as arrays, with which address, and which objects are refused.
The library is not called, so device memory needs no device."""

import ctypes
import unittest
from unittest import mock

import numpy as np

import tutti
from tutti import _buffers, _calls, _dlpack, _lib


class FakeDevice:
    """An object with __cuda_array_interface__, at any address."""

    def __init__(self, address: int, shape=(4, 3), typestr="<f4", **more) -> None:
        self.__cuda_array_interface__ = dict(
            dict(data=(address, False), shape=shape, typestr=typestr, version=3), **more)


class Capsule:
    """An object with __dlpack__, described by hand."""

    def __init__(self, address: int, code: int, bits: int, shape, strides=None, device=2, flags=0,
                 versioned=True, major=1) -> None:
        self.device, self.versioned, self.arguments = device, versioned, None
        self._keep = (ctypes.c_int64 * len(shape))(*shape), (
            None if strides is None else (ctypes.c_int64 * len(shape))(*strides))
        kind = _dlpack._VersionedTensor
        self._managed = kind(major=major, flags=flags)
        tensor = self._managed.tensor
        tensor.data, tensor.device_type, tensor.ndim = address, device, len(shape)
        tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset = code, bits, 1, 8
        tensor.shape = self._keep[0]
        if strides is not None:
            tensor.strides = self._keep[1]

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **arguments):
        if "max_version" in arguments and not self.versioned:
            raise TypeError("max_version")
        self.arguments = arguments
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        if self.versioned:
            return new(ctypes.addressof(self._managed), b"dltensor_versioned", None)
        return new(ctypes.addressof(self._managed.tensor), b"dltensor", None)


class OneWorld:
    """Stands for a communicator."""

    rank, size, handle = 1, 4, 77


class Arrays(unittest.TestCase):
    def refused(self, kind, words, call, *args, **kwargs) -> None:
        with self.assertRaisesRegex(kind, words):
            call(OneWorld, *args, **kwargs)

    def test_numpy_in_place(self) -> None:
        x = np.ones((4, 3), "f4")
        seen = _calls.allreduce(OneWorld, x, "sum", x)
        self.assertEqual(seen.args, (x.ctypes.data, x.ctypes.data, 12, _lib.FLOAT32, _lib.SUM))
        out = np.empty((4, 3), "f4")
        seen = _calls.allreduce(OneWorld, x, "max", out)
        self.assertEqual(seen.args[:2], (x.ctypes.data, out.ctypes.data))
        self.assertIs(seen.result, out)
        part = np.ones((6, 3), "f4")[2:4]
        self.assertEqual(_calls.send(OneWorld, part, 0).args[0], part.ctypes.data)

    def test_short_way(self) -> None:
        """plain_reduction returns the same arguments as the general way, or None, which means: use
        the general way."""
        for kind in ("f4", "i8", "?", "f2", tutti.pair_dtype("int32")):
            x, y = np.zeros((4, 3), kind), np.zeros((4, 3), kind)
            for op in ("minloc", "max", tutti.Op.BOR):
                for out in (x, y):
                    wanted = _calls.allreduce(OneWorld, x, op, out).args  # now the type is known
                    self.assertEqual(_calls.plain_reduction(x, op, out), wanted)
        fixed = np.ones((4, 3))
        fixed.flags.writeable = False
        x = np.ones((4, 3))
        for array, op, out in (
                (x, "sum", None), (x, "sum", np.ones(12)), (x, "sum", np.ones((4, 3), "f4")),
                (x, "add", x), (x, [1], x), (x, "sum", fixed), (fixed, "sum", x), (x.T, "sum", x.T),
                (x, "sum", np.ones((4, 6))[:, ::2]), ([1.0], "sum", np.ones(1)),
                (np.ones(3, "c8"), "sum", np.ones(3, "c8")), (np.ones(0), "sum", np.ones(0)),
                (np.ones(2, ">f4"), "sum", np.ones(2, ">f4")),
                (np.ma.ones(3), "sum", np.ones(3))):
            self.assertIsNone(_calls.plain_reduction(array, op, out))

    def test_copies_of_inputs(self) -> None:
        x = np.arange(12.0).reshape(4, 3)[:, 1:]
        seen = _calls.send(OneWorld, x, 0)
        self.assertNotEqual(seen.args[0], x.ctypes.data)
        np.testing.assert_array_equal(seen.keep[0], x)

    def test_refused(self) -> None:
        x = np.ones((4, 3))
        fixed = np.ones((4, 3))
        fixed.flags.writeable = False
        self.refused(ValueError, "allreduce: out is not contiguous", _calls.allreduce, x[:, :2],
                     "sum", np.ones((4, 3))[:, :2])
        view = x.T
        self.refused(ValueError, "array, which is out as well, is not contiguous",
                     _calls.allreduce, view, "sum", view)
        self.refused(ValueError, "read-only", _calls.allreduce, x, "sum", fixed)
        self.refused(ValueError, "broadcast: array is read-only", _calls.broadcast, fixed)
        self.refused(ValueError, r"out has shape \(3, 4\), but the result has \(4, 3\)",
                     _calls.allreduce, x, "sum", np.ones((3, 4)))
        self.refused(TypeError, "elements of float64, but out has float32", _calls.allreduce, x,
                     "sum", np.ones((4, 3), "f4"))
        self.refused(TypeError, "allreduce: array is None", _calls.allreduce, None)
        self.refused(TypeError, "recv: out is of type list", _calls.recv, [1.0], 0)
        self.refused(TypeError, "recv: out is of type float", _calls.recv, 1.0, 0)
        self.refused(TypeError, "Python objects", _calls.allreduce, np.array([None]))
        self.refused(TypeError, "Python objects", _calls.send, np.array([None]), 0)
        self.refused(TypeError, ">f4 cannot be reduced", _calls.allreduce, np.ones(2, ">f4"))
        self.refused(TypeError, "mask", _calls.allreduce, np.ma.masked_array([1.0], [True]))
        self.refused(ValueError, "op is 'add'", _calls.allreduce, x, "add")
        self.refused(ValueError, "op is", _calls.allreduce, x, [1])
        self.refused(ValueError, "root is 4; ranks are 0 to 3", _calls.reduce, x, "sum", 4)
        self.refused(ValueError, "dest is -1", _calls.send, x, -1)
        self.refused(ValueError, "source is 1.0", _calls.recv, x, 1.0)

    def test_refused_parts(self) -> None:
        x = np.ones((6, 2))
        self.refused(ValueError, r"6 rows \(shape \(6, 2\)\), which 4 ranks cannot share",
                     _calls.reduce_scatter, x)
        self.refused(ValueError, "no axis", _calls.alltoall, np.float64(1))
        self.refused(ValueError, "counts has shape", _calls.reduce_scatterv, x, [1, 2])
        self.refused(ValueError, "whole numbers", _calls.reduce_scatterv, x, [1.5, 1.5, 1.5, 1.5])
        self.refused(ValueError, "whole numbers", _calls.reduce_scatterv, x, [8, -2, 0, 0])
        self.refused(ValueError, "5 rows together, but array has 6", _calls.reduce_scatterv, x,
                     [2, 1, 1, 1])
        self.refused(ValueError, r"6 rows, but counts\[1\] is 5", _calls.allgatherv, x,
                     [6, 5, 6, 6])
        self.refused(ValueError, "out has 2 elements, but the parts need 16", _calls.allgatherv,
                     np.ones((2, 2)), [2, 2, 2, 2], None, np.ones(2))
        self.refused(ValueError, "need 8 rows, but array has 6", _calls.alltoallv, x, [2, 2, 2, 2])
        self.refused(ValueError, "need 7 rows, but array has 6", _calls.alltoallv, x,
                     [1, 1, 1, 1], None, [0, 0, 0, 6])
        self.refused(ValueError, "scatter: out is None", _calls.scatter)
        self.refused(ValueError, "root needs the counts", _calls.gatherv, x, None, None, 1)
        self.refused(ValueError, r"out has shape \(5,\), but the result has \(24, 2\)",
                     _calls.allgather, x, np.ones(5))

    def test_rows_become_elements(self) -> None:
        x = np.ones((6, 2), "c16")  # two doubles each
        seen = _calls.alltoallv(OneWorld, x, [1, 2, 3, 0], [2, 1, 0, 1])
        counts, displs = seen.keep[1], seen.keep[2]
        self.assertEqual((counts.tolist(), displs), ([4, 8, 12, 0], None))
        self.assertEqual(seen.args[1], counts.ctypes.data)
        self.assertEqual(seen.result.shape, (4, 2))
        self.assertEqual(seen.args[-1], _lib.FLOAT64)

    def test_device_pointers(self) -> None:
        x, y = FakeDevice(0x7000), FakeDevice(0x9000)
        seen = _calls.allreduce(OneWorld, x, "avg", y)
        self.assertEqual(seen.args, (0x7000, 0x9000, 12, _lib.FLOAT32, _lib.AVG))
        self.assertIs(seen.result, y)
        self.assertIn(x, seen.keep[0])
        self.assertEqual(_calls.allreduce(OneWorld, x, "avg", x).args[:2], (0x7000, 0x7000))
        self.refused(ValueError, "array is in device memory, so out must be given",
                     _calls.allreduce, x)
        self.refused(ValueError, "array is in device memory, but out is in host memory",
                     _calls.allreduce, x, "sum", np.ones((4, 3), "f4"))
        self.refused(ValueError, "not contiguous", _calls.send,
                     FakeDevice(0x7000, strides=(4, 16)), 0)
        self.refused(ValueError, "read-only", _calls.broadcast,
                     FakeDevice(0x7000, data=(0x7000, True)))
        self.refused(ValueError, "counts to receive", _calls.allgatherv, x)
        one = FakeDevice(0x7000, shape=(1, 3), strides=(400, 4))  # an axis of one entry
        self.assertEqual(_calls.send(OneWorld, one, 0).args[1], 3)

    def test_dlpack_device(self) -> None:
        for versioned in (True, False):
            x = Capsule(0x7000, 4, 16, (4, 3), (3, 1), versioned=versioned)
            seen = _calls.allreduce(OneWorld, x, "sum", x)
            self.assertEqual(seen.args, (0x7008, 0x7008, 12, _lib.BFLOAT16, _lib.SUM))
            self.assertEqual(x.arguments["stream"], -1)
        for code, bits, wanted in ((10, 8, _lib.FLOAT8_E4M3), (12, 8, _lib.FLOAT8_E5M2),
                                   (6, 8, _lib.BOOL), (0, 64, _lib.INT64), (2, 16, _lib.FLOAT16)):
            x = Capsule(0x7000, code, bits, (5,))
            self.assertEqual(_calls.send(OneWorld, x, 0).args, (0x7008, 5, wanted, 0))
        x = Capsule(0x7000, 5, 64, (5,))
        self.assertEqual(_calls.send(OneWorld, x, 0).args[1:3], (10, _lib.FLOAT32))
        self.assertEqual(_calls.send(OneWorld, Capsule(0x7000, 2, 32, ()), 0).args[1], 1)

    def test_dlpack_refused(self) -> None:
        self.refused(ValueError, "not contiguous", _calls.send,
                     Capsule(0x7000, 2, 32, (4, 3), (1, 4)), 0)
        self.refused(ValueError, "read-only", _calls.recv, Capsule(0x7000, 2, 32, (4,), flags=1), 0)
        self.refused(TypeError, "send: array has a DLPack type .code 9", _calls.send,
                     Capsule(0x7000, 9, 8, (4,)), 0)
        self.refused(TypeError, "elements of type float128", _calls.send,
                     Capsule(0x7000, 2, 128, (4,)), 0)
        self.refused(TypeError, "device of DLPack's type 7", _calls.send,
                     Capsule(0x7000, 2, 32, (4,), device=7), 0)
        self.refused(BufferError, "version 2", _calls.send,
                     Capsule(0x7000, 2, 32, (4,), major=2), 0)

    def test_dlpack_host(self) -> None:
        x = np.arange(6.0)

        class Wrapped:  # numpy's own capsules
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **arguments):
                return self.array.__dlpack__(**arguments)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        wrapped = Wrapped(x)
        seen = _calls.allreduce(OneWorld, wrapped, "sum", wrapped)
        self.assertEqual(seen.args[:2], (x.ctypes.data, x.ctypes.data))
        seen = _calls.allreduce(OneWorld, wrapped)
        self.assertEqual((seen.result.shape, seen.result.dtype), ((6,), x.dtype))
        view = x.reshape(2, 3).T
        seen = _calls.send(OneWorld, Wrapped(view), 0)  # copied
        np.testing.assert_array_equal(seen.keep[0], view)
        self.refused(ValueError, "recv: out is not contiguous", _calls.recv, Wrapped(view), 0)

    def test_types_of_ml_dtypes(self) -> None:
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("no ml_dtypes")
        x = np.ones(3, ml_dtypes.bfloat16)
        self.assertEqual(_calls.allreduce(OneWorld, x).args[3], _lib.BFLOAT16)
        seen = _calls.allreduce(OneWorld, Capsule(0x7000, 4, 16, (4,), device=1))
        self.assertEqual(seen.result.dtype, x.dtype)

    def test_torch_tensors(self) -> None:
        try:
            import torch
        except (ImportError, OSError):
            self.skipTest("no torch")
        x = torch.arange(6).to(torch.bfloat16)
        seen = _calls.allreduce(OneWorld, x, "sum", x)
        self.assertEqual(seen.args, (x.data_ptr(), x.data_ptr(), 6, _lib.BFLOAT16, _lib.SUM))
        part = torch.zeros(6, dtype=torch.float64)[2:]
        self.assertEqual(_calls.recv(OneWorld, part, 0).args[:2], (part.data_ptr(), 4))
        self.refused(ValueError, "not contiguous", _calls.recv, torch.zeros(2, 3).t(), 0)
        self.assertEqual(_calls.allreduce(OneWorld, torch.zeros(2, 3).t()).result.shape, (3, 2))
        x = torch.zeros(3, dtype=torch.bool)
        self.assertEqual(_calls.allreduce(OneWorld, x).args[3], _lib.BOOL)

    def test_no_type_for_a_result(self) -> None:
        """A call without counts makes its result later, but its start reports that it cannot."""
        x = Capsule(np.zeros(104, "u1").ctypes.data, 4, 16, (48,), device=1)
        with mock.patch.object(_buffers, "numpy_type", side_effect=ImportError):
            self.refused(ValueError, "numpy has no type bfloat16", _calls.allgatherv, x)
            self.refused(ValueError, "numpy has no type bfloat16", _calls.alltoallv, x, [12] * 4)

    def test_counts(self) -> None:
        self.assertEqual(_buffers.count_of(()), 1)
        self.assertEqual(_buffers.count_of((2, 0)), 0)
        x = np.ones((2, 0))
        self.assertEqual(_calls.allreduce(OneWorld, x).args[2], 0)
        self.assertEqual(_calls.allgatherv(OneWorld, x, [2] * 4).result.shape, (8, 0))

    def test_pair_types(self) -> None:
        with self.assertRaisesRegex(TypeError, "pair_dtype"):
            tutti.pair_dtype("int8")
        swapped = np.zeros(2, [("index", "i4"), ("value", "f4")])
        self.refused(TypeError, "cannot be reduced", _calls.allreduce, swapped, "minloc")
        self.assertEqual(_calls.send(OneWorld, swapped, 0).args[1:3], (16, _lib.UINT8))


if __name__ == "__main__":
    unittest.main()
