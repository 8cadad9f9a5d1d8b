#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace lowtide::plan {

struct Variant {
  std::string kind;
  Setup setup;
};

// Every setup worth trying on these GPUs, several of a kind; each passes CheckSetup.
std::vector<Variant> Variants(const Request& request);

// What articles advise for so many parameters.
Variant PopularVariant(const Request& request, double parameters, std::string* name);

}  // namespace lowtide::plan
