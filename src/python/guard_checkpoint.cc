// _guard: checkpoint files. Addresses come from tensors that the caller keeps alive for the call.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "lowtide/crc32c.h"
#include "base/error.h"
#include "checkpoint/reader.h"
#include "lowtide/checkpoint/file_writer.h"
#include "python/guard.h"

namespace lowtide::python {
namespace {

namespace ck = lowtide::checkpoint;

PyObject* RaiseErrno(int error, const char* stage, const std::string& path) {
  PyObject* args = Py_BuildValue("(iss)", error, (std::string(stage) + ": " + std::strerror(error)).c_str(), path.c_str());
  if (args) PyErr_SetObject(PyExc_OSError, args);
  Py_XDECREF(args);
  return nullptr;
}

PyObject* Address(const void* memory) { return PyLong_FromVoidPtr(const_cast<void*>(memory)); }

bool ReadAddress(PyObject* number, void*& memory) {
  memory = PyLong_AsVoidPtr(number);
  return !PyErr_Occurred();
}

// copy(to, from, bytes) -> CRC-32C of the bytes copied
PyObject* Copy(PyObject*, PyObject* args) {
  PyObject *to_number, *from_number;
  Py_ssize_t bytes;
  void *to, *from;
  if (!PyArg_ParseTuple(args, "OOn", &to_number, &from_number, &bytes) || !ReadAddress(to_number, to) ||
      !ReadAddress(from_number, from)) {
    return nullptr;
  }
  uint32_t crc;
  Py_BEGIN_ALLOW_THREADS;
  crc = lowtide::CopyCrc32c(to, from, static_cast<size_t>(bytes));
  Py_END_ALLOW_THREADS;
  return PyLong_FromUnsignedLong(crc);
}

// crc32c(address, bytes) -> CRC-32C
PyObject* Crc(PyObject*, PyObject* args) {
  PyObject* number;
  Py_ssize_t bytes;
  void* memory;
  if (!PyArg_ParseTuple(args, "On", &number, &bytes) || !ReadAddress(number, memory)) return nullptr;
  uint32_t crc;
  Py_BEGIN_ALLOW_THREADS;
  crc = lowtide::Crc32c(0, memory, static_cast<size_t>(bytes));
  Py_END_ALLOW_THREADS;
  return PyLong_FromUnsignedLong(crc);
}

PyObject* CrcOfBytes(PyObject*, PyObject* args) {
  Py_buffer data;
  if (!PyArg_ParseTuple(args, "y*", &data)) return nullptr;
  const uint32_t crc = lowtide::Crc32c(0, data.buf, static_cast<size_t>(data.len));
  PyBuffer_Release(&data);
  return PyLong_FromUnsignedLong(crc);
}

// put(to, bytes-like): copies a small buffer to an address
PyObject* Put(PyObject*, PyObject* args) {
  PyObject* number;
  Py_buffer data;
  void* memory;
  if (!PyArg_ParseTuple(args, "Oy*", &number, &data)) return nullptr;
  const bool good = ReadAddress(number, memory);
  if (good) std::memcpy(memory, data.buf, static_cast<size_t>(data.len));
  PyBuffer_Release(&data);
  if (!good) return nullptr;
  Py_RETURN_NONE;
}

PyObject* Allocate(PyObject*, PyObject* args) {
  Py_ssize_t bytes;
  if (!PyArg_ParseTuple(args, "n", &bytes)) return nullptr;
  void* memory;
  Py_BEGIN_ALLOW_THREADS;
  memory = ck::AllocateStaging(static_cast<size_t>(bytes));
  Py_END_ALLOW_THREADS;
  if (!memory) return PyErr_NoMemory();
  return Address(memory);
}

PyObject* Free(PyObject*, PyObject* args) {
  PyObject* number;
  Py_ssize_t bytes;
  void* memory;
  if (!PyArg_ParseTuple(args, "On", &number, &bytes) || !ReadAddress(number, memory)) return nullptr;
  ck::FreeStaging(memory, static_cast<size_t>(bytes));
  Py_RETURN_NONE;
}

// write(folder, temporary, name, address, bytes, threads, direct, sync) -> whether it went past the page cache
PyObject* Write(PyObject*, PyObject* args) {
  PyObject *folder, *temporary, *name, *number;
  Py_ssize_t bytes;
  int threads, direct, sync;
  void* memory;
  if (!PyArg_ParseTuple(args, "O&O&O&Oniii", PyUnicode_FSConverter, &folder, PyUnicode_FSConverter, &temporary,
                        PyUnicode_FSConverter, &name, &number, &bytes, &threads, &direct, &sync)) {
    return nullptr;
  }
  const std::string where = PyBytes_AS_STRING(folder), from = PyBytes_AS_STRING(temporary), to = PyBytes_AS_STRING(name);
  Py_DECREF(folder);
  Py_DECREF(temporary);
  Py_DECREF(name);
  if (!ReadAddress(number, memory)) return nullptr;
  ck::WriteResult result;
  Py_BEGIN_ALLOW_THREADS;
  result = ck::WriteFile(where, from, to, memory, static_cast<size_t>(bytes), {threads, direct != 0, sync != 0});
  Py_END_ALLOW_THREADS;
  if (result.error) return RaiseErrno(result.error, result.stage, where + "/" + to);
  return PyBool_FromLong(result.direct);
}

PyObject* SyncFolder(PyObject*, PyObject* args) {
  PyObject* folder;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &folder)) return nullptr;
  const std::string where = PyBytes_AS_STRING(folder);
  Py_DECREF(folder);
  ck::WriteResult result;
  Py_BEGIN_ALLOW_THREADS;
  result = ck::SyncFolder(where);
  Py_END_ALLOW_THREADS;
  if (result.error) return RaiseErrno(result.error, result.stage, where);
  Py_RETURN_NONE;
}

// read(fd, offset, address, bytes) -> CRC-32C of what was read; EOFError when the file ends before
PyObject* Read(PyObject*, PyObject* args) {
  int fd;
  unsigned long long offset;
  PyObject* number;
  Py_ssize_t bytes;
  void* memory;
  if (!PyArg_ParseTuple(args, "iKOn", &fd, &offset, &number, &bytes) || !ReadAddress(number, memory)) return nullptr;
  uint32_t crc = 0;
  int error = 0;
  bool ended = false;
  Py_BEGIN_ALLOW_THREADS;
  auto* out = static_cast<char*>(memory);
  auto left = static_cast<size_t>(bytes);
  if (left >= (4u << 20)) {  // fresh memory: fewer page faults; only a hint
    const auto page = (reinterpret_cast<uintptr_t>(out) + 4095) & ~uintptr_t{4095};
    ::madvise(reinterpret_cast<void*>(page), (left - (page - reinterpret_cast<uintptr_t>(out))) & ~size_t{4095}, MADV_HUGEPAGE);
  }
  while (left && !error && !ended) {
    const ssize_t got = ::pread(fd, out, left < (1u << 20) ? left : 1u << 20, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    ended = got == 0;
    if (got <= 0) break;
    crc = lowtide::Crc32c(crc, out, static_cast<size_t>(got));  // while it is in the cache
    out += got;
    offset += static_cast<unsigned long long>(got);
    left -= static_cast<size_t>(got);
  }
  Py_END_ALLOW_THREADS;
  if (error) return RaiseErrno(error, "read", "checkpoint");
  if (ended) {
    PyErr_SetString(PyExc_EOFError, "the file ends before the tensor");
    return nullptr;
  }
  return PyLong_FromUnsignedLong(crc);
}

PyObject* TensorTuple(const ck::Tensor& tensor, uint64_t data_start) {
  PyObject* shape = PyTuple_New(static_cast<Py_ssize_t>(tensor.shape.size()));
  if (!shape) return nullptr;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    PyObject* size = PyLong_FromUnsignedLongLong(tensor.shape[i]);
    if (!size) {
      Py_DECREF(shape);
      return nullptr;
    }
    PyTuple_SET_ITEM(shape, static_cast<Py_ssize_t>(i), size);
  }
  return Py_BuildValue("(ssNKKI)", tensor.name.c_str(), tensor.dtype.c_str(), shape,
                       static_cast<unsigned long long>(data_start + tensor.begin),
                       static_cast<unsigned long long>(tensor.end - tensor.begin), tensor.crc);
}

// header(path, verify) -> (metadata {str: str}, [(name, dtype, shape, offset, bytes, crc)], step, nonce bytes, file bytes,
// header checksum). ValueError with the whole explanation when the file is damaged.
PyObject* ReadHeader(PyObject*, PyObject* args) {
  PyObject* name;
  int verify;
  if (!PyArg_ParseTuple(args, "O&p", PyUnicode_FSConverter, &name, &verify)) return nullptr;
  const std::string path = PyBytes_AS_STRING(name);
  Py_DECREF(name);
  ck::Header header;
  std::string failed;
  Py_BEGIN_ALLOW_THREADS;
  try {
    header = verify ? ck::VerifyFile(path) : ck::ReadHeader(path);
  } catch (const std::exception& error) {
    failed = error.what();
  }
  Py_END_ALLOW_THREADS;
  if (!failed.empty()) {
    PyErr_SetString(PyExc_ValueError, failed.c_str());
    return nullptr;
  }
  PyObject* metadata = PyDict_New();
  PyObject* tensors = PyList_New(0);
  bool good = metadata && tensors;
  for (const auto& [key, text] : header.metadata) {
    PyObject* value = good ? PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict") : nullptr;
    good = value && PyDict_SetItemString(metadata, key.c_str(), value) == 0;
    Py_XDECREF(value);
  }
  for (const ck::Tensor& tensor : header.tensors) {
    PyObject* tuple = good ? TensorTuple(tensor, header.data_start) : nullptr;
    good = tuple && PyList_Append(tensors, tuple) == 0;
    Py_XDECREF(tuple);
  }
  if (!good) {
    Py_XDECREF(metadata);
    Py_XDECREF(tensors);
    return nullptr;
  }
  return Py_BuildValue("(NNKy#KI)", metadata, tensors, static_cast<unsigned long long>(header.seal.step),
                       reinterpret_cast<const char*>(header.seal.nonce), static_cast<Py_ssize_t>(16),
                       static_cast<unsigned long long>(header.file_bytes), header.seal.header_crc);
}

}  // namespace

PyMethodDef kCheckpointMethods[] = {
    {"copy", Copy, METH_VARARGS, "copy(to, from, bytes) -> CRC-32C"},
    {"crc32c", Crc, METH_VARARGS, "crc32c(address, bytes) -> CRC-32C"},
    {"crc32c_bytes", CrcOfBytes, METH_VARARGS, "crc32c_bytes(buffer) -> CRC-32C"},
    {"put", Put, METH_VARARGS, "put(address, buffer)"},
    {"allocate", Allocate, METH_VARARGS, "allocate(bytes) -> address of touched pages"},
    {"free", Free, METH_VARARGS, "free(address, bytes)"},
    {"write", Write, METH_VARARGS, "write(folder, temporary, name, address, bytes, threads, direct, sync) -> direct"},
    {"sync_folder", SyncFolder, METH_VARARGS, "sync_folder(folder)"},
    {"read", Read, METH_VARARGS, "read(fd, offset, address, bytes) -> CRC-32C"},
    {"header", ReadHeader, METH_VARARGS, "header(path, verify) -> (metadata, tensors, step, nonce, bytes, header_crc)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace lowtide::python
