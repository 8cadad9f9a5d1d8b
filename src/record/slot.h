#pragma once

#include "lowtide/record/slot.h"  // public: programs that link LibTorch write the same files
