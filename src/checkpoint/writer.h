#pragma once

#include "lowtide/checkpoint/file_writer.h"
