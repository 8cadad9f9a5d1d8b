#include "cli/parse.h"

int main(int argc, char** argv) { return lowtide::cli::Main(argc, argv); }
