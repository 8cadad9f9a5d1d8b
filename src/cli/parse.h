#pragma once

namespace lowtide::cli {

// Parses the command line, runs the verb it names and returns the exit code.
int Main(int argc, char** argv);

}  // namespace lowtide::cli
