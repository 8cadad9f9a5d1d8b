// Bytes of a ring file that may be growing, cut or hostile: every range is checked against the file as it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lowtide/record/ring_format.h"

namespace lowtide::record {

class RingFile {
 public:
  // Throws Error when the file cannot be opened or is no ring file.
  explicit RingFile(const std::string& path);
  ~RingFile();
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  // Reads the header again; throws Error when it is not (or no longer) one.
  void RefreshHeader();
  const FileHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  bool cut() const { return cut_; }

  // Bytes read at `offset`, fewer at the file's end.
  size_t Read(uint64_t offset, void* to, size_t bytes) const;
  // Writes one word; false when the file is read-only.
  bool WriteWord(uint64_t offset, uint64_t value) const;

  // Entries [index, index + run) of a section, as many as are in the file, copied twice in a row.
  template <typename Entry>
  void ReadTwice(const Section& section, uint64_t index, uint64_t run, std::vector<Entry>& once,
                 std::vector<Entry>& again) const {
    ReadEntries(section, index, run, once);
    ReadEntries(section, index, run, again);
    if (again.size() < once.size()) once.resize(again.size());
  }
  template <typename Entry>
  std::vector<Entry> ReadAll(const Section& section) const {
    std::vector<Entry> out;
    ReadEntries(section, 0, section.count, out);
    return out;
  }

 private:
  template <typename Entry>
  void ReadEntries(const Section& section, uint64_t index, uint64_t run, std::vector<Entry>& out) const {
    out.resize(std::min<uint64_t>(run, bytes_ / sizeof(Entry) + 1));  // never more than the file could hold
    const size_t got = Read(section.offset + index * sizeof(Entry), out.data(), out.size() * sizeof(Entry));
    out.resize(got / sizeof(Entry));
  }
  void CheckSections();

  std::string path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;  // the file's size now
  bool cut_ = false;
  FileHeader header_{};
};

}  // namespace lowtide::record
