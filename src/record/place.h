#pragma once

#include "lowtide/record/place.h"
