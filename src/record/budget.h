#pragma once

#include "lowtide/record/budget.h"  // public: programs that link LibTorch write the same files
