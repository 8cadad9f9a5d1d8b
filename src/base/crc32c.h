#pragma once

#include "lowtide/crc32c.h"
