#pragma once

namespace lowtide::report {

// src/report/assets, embedded at build time, with SHA-256 in hexadecimal.
struct Asset {
  const char* text;
  const char* sha256;
};
extern const Asset kStyle;
extern const Asset kScript;

}  // namespace lowtide::report
