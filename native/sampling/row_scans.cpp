// Compiled once for each instruction set, which PACELINE_ISA names.
#include "sampling/row_scans_template.hpp"
