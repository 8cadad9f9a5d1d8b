#pragma once

#include "lowtide/record/ring_format.h"  // public: programs that link LibTorch write the same files
