#pragma once

#include "lowtide/record/host.h"
