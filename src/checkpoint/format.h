#pragma once

#include "lowtide/checkpoint/format.h"
