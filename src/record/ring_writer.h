#pragma once

#include "lowtide/record/ring_writer.h"
