#pragma once

#include "lowtide/record/series_writer.h"
