#pragma once

#include <algorithm>
#include <initializer_list>

#include "lint/executor.h"

// What the files of the executor share beside its class.
namespace lowtide::lint {

// Facts about the value that joins and operations keep together.
inline constexpr uint16_t kGraphFlags = kGrad | kMaybe | kBacked | kLossNamed;

// The value of a name that is either `a` or `b`, or of what is made of both.
Value Union(const Value& a, const Value& b);

inline bool In(Atom name, std::initializer_list<Atom> names) { return std::find(names.begin(), names.end(), name) != names.end(); }

}  // namespace lowtide::lint
